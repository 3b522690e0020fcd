"""Of shell commands, which are told to have gone round a tool, and is it the right one?

    python -m bench.retrieval.bypasses CATALOGS [--encoder NAME] [--part choosing|report] [--show] [--json]

`bypasses.json` holds sixty commands that a tool of its servers serves, with the tools that do, and two hundred that no
tool of them serves. They were written before any result was seen: one half to choose the rules by, one to report. A
command for which another tool is named counts against precision and recall alike.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import options
from bench.datasets import read_catalogs, tool_of
from bench.kept_encoder import KeptEncoder, open_kept
from bench.reports import Row, print_row
from bench.retrieval.pool import DEPTH, Pool
from foretool.retrieval import confidence
from foretool.retrieval.encoders import resolve_weights
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import Query
from foretool.retrieval.shell_commands import find_served, search_words
from foretool.server.hints.shell_shape import read_shapes
from foretool.storage.opening import open_store
from foretool.storage.records import Tool, ToolId

FILE = Path(__file__).with_name("bypasses.json")
PARTS = ("choosing", "report")


def served_tools(command: str, pipeline: Pipeline, tools: dict[ToolId, Tool]) -> list[str]:
    """The tools that a command went round."""
    found: list[str] = []
    for shape in read_shapes(command):
        ranking = pipeline.rank(Query((search_words(shape),)), limit=DEPTH)
        if confidence.level(ranking) != "none":
            tool = find_served(shape, ranking, tools.get, lambda server: (server,))
            found += [tool.id] if tool is not None else []
    return found


def examine(held: dict[str, Any], part: str, pool: Pool, show: bool = False) -> Row:
    """Count one half."""
    pipeline, tools = pool.pipeline(), {tool.id: tool for tool in pool.tools}
    right, wrong, missed = 0, 0, 0
    for command, wanted in (*held["bypasses"][part], *((each, []) for each in held["unserved"][part])):
        found = served_tools(command, pipeline, tools)
        is_right = not set(found).isdisjoint(wanted)
        right += bool(wanted) and is_right
        missed += bool(wanted) and not is_right
        wrong += sum(each not in wanted for each in found)
        if show and ((wanted and not is_right) or set(found) - set(wanted)):
            print(f"{command!r}: found {found}, wanted {wanted}")
    return {
        "part": part, "bypasses": right + missed, "unserved": len(held["unserved"][part]), "tools": len(pool.tools),
        "precision": round(right / (right + wrong), 3) if right + wrong else None,
        "recall": round(right / (right + missed), 3), "wrong": wrong, "missed": missed,
    }  # fmt: skip


def results(arguments: argparse.Namespace) -> Iterator[Row]:
    """A row for each half, and one for both."""
    held = json.loads(FILE.read_text("utf-8"))
    catalogs = dict(read_catalogs(arguments.catalogs))
    tools = [tool_of(name, each) for name, server in held["servers"].items() for each in catalogs[server]]
    with open_store(":memory:") as store:
        named = [] if arguments.encoder == "none" else resolve_weights(arguments.encoder)
        embedders: Sequence[KeptEncoder] = [open_kept(each, store.vectors) for each in named]
        pool = Pool(tools, {}, embedders)
        rows = [examine(held, part, pool, arguments.show) for part in arguments.part or PARTS]
    yield from rows


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the rows."""
    parser = options.make_parser("bench.retrieval.bypasses", __doc__)
    parser.add_argument("catalogs", type=Path, help="a folder with what real servers list")
    parser.add_argument("--encoder", default="auto", help="as the setting `encoder`; default %(default)s")
    parser.add_argument("--part", action="append", choices=PARTS, help="one half alone")
    parser.add_argument("--show", action="store_true", help="print every command that was judged wrongly")
    options.add_json(parser)
    arguments = parser.parse_args(argv)
    for row in results(arguments):
        print_row(row, arguments.json)


if __name__ == "__main__":
    main()
