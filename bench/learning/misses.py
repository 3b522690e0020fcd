"""Measures what misses add to training: later tasks are replayed with a model that read them, and with one without.

Each session on record has two tasks of the training part of a set, with a search and a call of a hidden tool for each.
An episode joins both searches with both calls; a miss says which is for which. The later tasks are those of the file of
queries. Words alone rank, and MassTool is what learns.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from bench.datasets import Task, read_tasks, read_tools
from bench.options import add_json, make_parser
from bench.reports import Row, print_row
from bench.retrieval.pool import Pool
from foretool.learning.rankers.masstool import MassTool
from foretool.learning.training import Material
from foretool.learning.training.masstool import METHOD
from foretool.learning.training.replay import StepRanks, compare, rank_steps
from foretool.storage.records import Episode, MissedNeed, Tool, ToolId

SEED, LATER = 7, 500


def sessions(past: Sequence[Task], count: int) -> tuple[list[Episode], list[MissedNeed]]:
    """So many episodes of two tasks each, and the misses that their searches revealed."""
    drawn = random.Random(SEED).sample(list(past), min(2 * count, len(past) // 2 * 2))
    episodes, missed = [], []
    for number in range(0, len(drawn), 2):
        pair = [(task.query, first_tool(task)) for task in drawn[number : number + 2]]
        texts, calls = zip(*pair, strict=True)
        episodes.append(Episode(tuple(dict.fromkeys(calls)), texts, at=float(number)))
        missed += [MissedNeed(number + 0.5, text, tool) for text, tool in pair]
    return episodes, missed


def first_tool(task: Task) -> ToolId:
    """The tool of a task of one tool."""
    return min(task.gold[0])


def ranked(tools: Sequence[Tool], material: Material | None, later: Sequence[Episode]) -> list[StepRanks]:
    """Ranks the tools of later tasks with a model trained on this material; without any, by words."""
    models = {"masstool": MassTool.loads(METHOD.train(material, lambda what, share: None))} if material else {}
    return rank_steps(Pool(tools, {}).pipeline(models=models), later, {tool.id: tool.upstream for tool in tools})


def row_of(folder: Path, queries: str, count: int) -> Row:
    """The figures of one set."""
    tools = read_tools(folder)
    past = [task for task in read_tasks(folder / "train.jsonl", tools) if len(task.gold) == 1]
    asked = [task for task in read_tasks(folder / queries, tools) if len(task.gold) == 1]
    asked = random.Random(SEED).sample(asked, min(LATER, len(asked)))
    later = [Episode((first_tool(task),), (task.query,)) for task in asked]
    episodes, missed = sessions(past, count)
    given = Material(tuple(tools), tuple(episodes), seed=SEED)
    knows = Material(tuple(tools), tuple(episodes), missed=tuple(missed), seed=SEED)
    words, without, with_misses = (ranked(tools, each, later) for each in (None, given, knows))
    found = compare(without, with_misses)
    return {
        "set": folder.name,
        "method": f"{len(episodes)} sessions",
        "n": len(later),
        "words_mrr": compare(words, without).old["mrr"],
        "without_mrr": found.old["mrr"],
        "with_mrr": found.new["mrr"],
        "difference": list(found.difference),
        "without_top5": found.old["top5"],
        "with_top5": found.new["top5"],
        "top5": list(found.top5),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print a row for each set."""
    parser = make_parser("bench.learning.misses", __doc__)
    parser.add_argument("sets", type=Path, nargs="+", metavar="SET", help="folders with tasks of one tool")
    parser.add_argument("--queries", default="dev.jsonl", metavar="FILE", help="file of later tasks")
    parser.add_argument("--sessions", type=int, default=200, metavar="COUNT", help="sessions on record")
    add_json(parser)
    arguments = parser.parse_args(argv)
    for folder in arguments.sets:
        print_row(row_of(folder, arguments.queries, arguments.sessions), arguments.json, width=14)


if __name__ == "__main__":
    main()
