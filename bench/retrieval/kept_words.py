"""Measures what a prompt hook finds without a proxy, by the words that a proxy has kept and without them.

    python -m bench.retrieval.kept_words DATA CATALOGS [--sets toole,stabletoolbench] [--tasks 150] [--json]

Each set stands among the tools of CATALOGS (the `tools/list` of real servers, one JSON file each). A task counts where
a tool that it needs is among the first five. `heads` chooses 100 tools by the first bytes of all definitions and ranks
those, `kept` chooses and ranks by the table of words, and `all` ranks every tool. The level `none` finds nothing.
`differ`: tasks whose first five differ between `kept` and `all`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.datasets import read_catalogs, read_tasks, read_tools, tool_of
from bench.options import add_json, make_parser
from bench.reports import Row, print_row
from foretool.retrieval.confidence import level
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.near_words import near_terms
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.bm25 import weigh_terms
from foretool.retrieval.ranking import Query
from foretool.retrieval.word_table import TableCorpus, WordTable, pack
from foretool.server import hint
from foretool.storage.records import Tool, ToolId
from foretool.storage.steps import finish

FIRST = 5
SEED = 7
Finds = Callable[[str], Sequence[ToolId]]


def first_of(corpus: Corpus, text: str) -> Sequence[ToolId]:
    """The tools that a corpus gives for a text."""
    ranking = Pipeline(corpus).rank(Query((text,)), limit=FIRST)
    return [] if level(ranking) == "none" else [each.tool for each in ranking.ranked]


def ways(tools: Sequence[Tool]) -> dict[str, Finds]:
    """The three ways, over these tools."""
    every = Corpus(tools)
    heads = [(tool.upstream, tool.id, tool.name, bytes(tool.definition)[: hint.HEAD_BYTES]) for tool in tools]
    by_id = {tool.id: tool for tool in tools}
    names = [str(id).encode() for id in every.ids]
    table = WordTable(finish(pack(every.lexical.all_impacts(), names, len(every))))

    def by_heads(text: str) -> Sequence[ToolId]:
        return first_of(Corpus([by_id[each[1]] for each in hint._preselect(heads, text)]), text)

    def by_table(text: str) -> Sequence[ToolId]:
        said = weigh_terms(text)
        near = {term: weight for term, (_, weight) in near_terms(said).items()}
        slots = table.best(said, near)[: hint.MOST_SCORED]
        return first_of(TableCorpus(table, {slot: by_id[ToolId(table.tool(slot).decode())] for slot in slots}), text)

    return {"heads": by_heads, "kept": by_table, "all": lambda text: first_of(every, text)}


def measure(folder: Path, others: Sequence[Tool], count: int) -> Row:
    """The row of one set."""
    tools = read_tools(folder)
    tasks = read_tasks(folder / "dev.jsonl", tools)
    tasks = random.Random(SEED).sample(tasks, min(count, len(tasks)))
    known = {tool.id for tool in tools}
    found = ways([*tools, *(tool for tool in others if tool.id not in known)])
    row: Row = {"data": folder.name, "tools": len(known) + len(others), "tasks": len(tasks)}
    given = {name: [finds(task.query[: hint.MOST_SEARCHED]) for task in tasks] for name, finds in found.items()}
    for name, each in given.items():
        met = sum(any(need & set(tools) for need in task.gold) for task, tools in zip(tasks, each, strict=True))
        row[f"{name}@{FIRST}"] = round(met / len(tasks), 3)
    row["differ"] = sum(one != other for one, other in zip(given["kept"], given["all"], strict=True))
    return row


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print a row for each set."""
    parser = make_parser("bench.retrieval.kept_words", __doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("catalogs", type=Path)
    parser.add_argument("--sets", default="toole,stabletoolbench", help="default %(default)s")
    parser.add_argument("--tasks", type=int, default=150, help="tasks of each set; default %(default)s")
    add_json(parser)
    arguments = parser.parse_args(argv)
    others = [tool_of(server, tool) for server, tools in read_catalogs(arguments.catalogs) for tool in tools]
    unique = list({tool.id: tool for tool in others}.values())
    for name in arguments.sets.split(","):
        print_row(measure(arguments.folder / name, unique, arguments.tasks), arguments.json)


if __name__ == "__main__":
    main()
