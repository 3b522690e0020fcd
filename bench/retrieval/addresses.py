"""Do tasks with a web address or a path find the right tool, whatever the words in these say?

    python -m bench.retrieval.addresses CATALOGS [--encoder NAME] [--show] [--json]

`addresses.json` holds 57 everyday tasks with an address and 34 with a path, each with what the name of a right tool
matches, and three sets of real servers; each was written before its answer was seen, and how addresses and paths are
read was chosen on them. Counted are those that a tool of the set serves. CATALOGS is a folder of these servers' lists.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import options
from bench.datasets import catalog_tools
from bench.kept_encoder import KeptEncoder, open_kept
from bench.reports import Row, print_row
from bench.retrieval.gate import ask
from bench.retrieval.pool import Pool
from foretool.retrieval.encoders import resolve_weights
from foretool.retrieval.known_tools import shipped_wordings
from foretool.retrieval.pipeline import Pipeline
from foretool.storage.opening import open_store

FILE = Path(__file__).with_name("addresses.json")


def examine(pipeline: Pipeline, tasks: Sequence[tuple[str, str]], *, show: bool = False) -> Row:
    """How often a right tool is first, and among the first five."""
    places = []
    for task, right in tasks:
        ranked = ask(pipeline, task).ranked
        places.append(next((at for at, each in enumerate(ranked, 1) if re.search(right, each.tool)), 0))
        if show and places[-1] != 1:
            print(f"{places[-1]} {task!r}: {', '.join(each.tool for each in ranked[:3])}")
    return {"n": len(places), "first": places.count(1), "among five": sum(0 < place <= 5 for place in places)}


def results(arguments: argparse.Namespace) -> Iterator[Row]:
    """A row for each set of servers and kind of task."""
    held, tools = json.loads(FILE.read_text("utf-8")), catalog_tools(arguments.catalogs)
    with open_store(":memory:") as store:
        encoders: list[KeptEncoder] = [open_kept(each, store.vectors) for each in resolve_weights(arguments.encoder)]
        for servers in held["servers"]:
            chosen = [tool for tool in tools if tool.upstream.startswith(tuple(servers))]
            pipeline = Pool(chosen, {}, encoders, shipped=shipped_wordings).pipeline()
            over = {"set": f"{len({tool.upstream for tool in chosen})} servers", "tools": len(chosen)}
            for kind in ("addresses", "paths"):
                served = [
                    (task, right) for task, right in held[kind] if any(re.search(right, each.id) for each in chosen)
                ]
                yield {**over, "method": kind, **examine(pipeline, served, show=arguments.show)}


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print as results come."""
    parser = options.make_parser("bench.retrieval.addresses", __doc__)
    parser.add_argument("catalogs", type=Path, help="folder of server catalogs")
    parser.add_argument("--encoder", default="auto", help="as the setting `encoder`; default %(default)s")
    parser.add_argument("--show", action="store_true", help="print the tasks whose right tool is not first")
    options.add_json(parser)
    arguments = parser.parse_args(argv)
    for result in results(arguments):
        print_row(result, arguments.json)


if __name__ == "__main__":
    main()
