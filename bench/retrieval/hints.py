"""Measures how many of a task's needed tools are among those that a prompt hook names.

    python -m bench.retrieval.hints DATA [--sets ultratool,bfcl_multi_turn] [--tasks 400] [--held-out 300] [--json]

`words` ranks as the hook does where no proxy runs, `everything` as the running proxy that it asks: with a DTDR model of
so many tasks of the train file. Both without an encoder. The tasks asked are those of the dev file, or the last of the
train file where that is longer; none of them was learned from. The difference has an interval of 95 % by pairs of
tasks. `tokens` is the mean length of the text, if every tool is hidden.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from bench.datasets import Task, read_rows, read_tasks, read_tools
from bench.options import add_json, make_parser
from bench.reports import Row, print_row
from foretool.learning.rankers.dtdr import Dtdr
from foretool.learning.training import Material
from foretool.learning.training.dtdr import METHOD
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.learned import LearnedModels
from foretool.retrieval.ranking import Query
from foretool.server.catalog.hint_text import Mark, write_hint
from foretool.server.methods.prompt_answer import RANKED
from foretool.storage.records import Episode, Tool, ToolId

SETS = ("ultratool", "bfcl_multi_turn")
SEED = 7
_ODD = re.compile(r"[^\w.-]+", re.ASCII)
Named = Callable[[str], tuple[Sequence[ToolId], int]]


def learn(tools: Sequence[Tool], folder: Path, count: int) -> LearnedModels:
    """Train DTDR on the first tasks of the train file, as `foretool learn` does."""
    known = {tool.id for tool in tools}
    by_name = {tool.name: tool.id for tool in reversed(tools)}
    episodes: list[Episode] = []
    for row in read_rows(folder / "train.jsonl")[:count]:
        calls = [ToolId(call) if call in known else by_name.get(call.rpartition("/")[2]) for call in row["calls"]]
        if found := tuple(call for call in calls if call):
            episodes.append(Episode(found, (row["query"],), source="import", key=str(len(episodes))))
    model = METHOD.train(Material(tuple(tools), tuple(episodes), seed=SEED), lambda *_: None)
    return LearnedModels({"dtdr": Dtdr.loads(model)})


def namer(pipeline: Pipeline, tools: Sequence[Tool]) -> Named:
    """The tools that a hook would name for a text, and the tokens of what it would say."""
    # The sets write names as `server/tool`, of which a proxy makes plain ones.
    plain = {tool.id: replace(tool, id=ToolId(_ODD.sub("__", tool.id))) for tool in tools}
    own = {tool.id: id for id, tool in plain.items()}

    def named(text: str) -> tuple[Sequence[ToolId], int]:
        ranked = pipeline.rank(Query(tuple(text.splitlines())), limit=RANKED).ranked
        hint = write_hint((plain[each.tool] for each in ranked), lambda _: Mark(is_listed=False, writes=True))
        return [own[tool] for tool in hint.tools], hint.tokens

    return named


def share(task: Task, named: Sequence[ToolId]) -> float:
    """The share of the needs of a task that the named tools meet."""
    return sum(bool(need & set(named)) for need in task.gold) / len(task.gold)


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """95 % of the means of tasks drawn again."""
    draw = np.random.default_rng(SEED)
    given = np.asarray(differences)
    means = given[draw.integers(0, len(given), (2000, len(given)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return round(float(low), 3), round(float(high), 3)


def results(data: Path, sets: Sequence[str], count: int, held_out: int) -> Iterator[Row]:
    """A row for each set."""
    for name in sets:
        folder = data / name
        tools = read_tools(folder)
        tasks = read_tasks(folder / "dev.jsonl", tools)
        random.Random(SEED).shuffle(tasks)
        tasks = tasks[:held_out]
        corpus = Corpus(tools)
        by_words = namer(Pipeline(corpus), tools)
        words = [share(task, by_words(task.query)[0]) for task in tasks]
        taught = Pipeline(corpus)
        taught.learned = learn(tools, folder, count)
        rank = namer(taught, tools)
        told = [rank(task.query) for task in tasks]
        everything = [share(task, named) for task, (named, _) in zip(tasks, told, strict=True)]
        low, high = interval([after - before for before, after in zip(words, everything, strict=True)])
        means = {"words": round(float(np.mean(words)), 3), "everything": round(float(np.mean(everything)), 3)}
        sizes = {"named": round(float(np.mean([len(named) for named, _ in told])), 1),
                 "tokens": round(float(np.mean([tokens for _, tokens in told])))}  # fmt: skip
        yield {
            "data": name,
            "tools": len(tools),
            "tasks": len(tasks),
            **means,
            **sizes,
            "gain_low": low,
            "gain_high": high,
        }


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print as results come."""
    parser = make_parser("bench.retrieval.hints", __doc__)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--sets", default=",".join(SETS), help="default %(default)s")
    parser.add_argument("--tasks", type=int, default=400, help="tasks that are learned from; default %(default)s")
    parser.add_argument("--held-out", type=int, default=300, help="tasks that are asked; default %(default)s")
    add_json(parser)
    arguments = parser.parse_args(argv)
    for row in results(arguments.data, arguments.sets.split(","), arguments.tasks, arguments.held_out):
        print_row(row, arguments.json)


if __name__ == "__main__":
    main()
