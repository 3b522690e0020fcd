"""What does a judge change: is the right tool first, and is a task that no tool serves called one?

    python -m bench.retrieval.judge CATALOGS --url URL --model NAME [--most N] [--encoder NAME] [--json]

Asks the everyday tasks, and the requests of `unserved.json`, of the servers of `everyday.json`. Where the gate is in
doubt, the endpoint chooses among the first twenty, as in the proxy but without a limit of time. `--most`: so many of
each, which bounds what it costs. Without `--url`, what a judge could gain at best is printed: one that always knows.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx2

from bench import options
from bench.kept_encoder import KeptEncoder, open_kept
from bench.reports import Row, print_row
from bench.retrieval.gate import UNSERVED_FILE, ask, everyday_tasks, sampled
from bench.retrieval.pool import Pool
from foretool.retrieval import confidence
from foretool.retrieval.encoders import resolve_weights
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import Ranking
from foretool.server.config.settings import JudgeEntry
from foretool.server.discovery.judge import NONE, OFFERED, JudgeError, apply_choice, read_answer, write_question
from foretool.server.discovery.schemas import summarize
from foretool.storage.opening import open_store
from foretool.storage.records import Tool, ToolId

Choose = Callable[[str, dict[str, str], Collection[str]], str]
"""Returns the choice for a task among tools; the right ones come with it, for a judge that knows."""


class AskedJudge:
    """Asks an endpoint."""

    def __init__(self, entry: JudgeEntry) -> None:
        self._entry = entry
        self._client = httpx2.Client(timeout=300)
        self.seconds: list[float] = []
        self.tokens: list[int] = []
        self.unread = 0

    def __call__(self, task: str, tools: dict[str, str], right: Collection[str]) -> str:
        headers = {"Authorization": f"Bearer {self._entry.key}"} if self._entry.key else {}
        started = time.perf_counter()
        answer = self._client.post(self._entry.address, json=write_question(self._entry, task, tools), headers=headers)
        self.seconds.append(time.perf_counter() - started)
        try:
            chosen, tokens = read_answer(self._entry, answer.content)
        except JudgeError:
            self.unread += 1
            return ""
        self.tokens.append(tokens)
        return chosen


def know_all(task: str, tools: dict[str, str], right: Collection[str]) -> str:
    """The right one of the tools, or that there is none."""
    return next((name for name in tools if name in right), NONE)


def judged(pipeline: Pipeline, tools: dict[ToolId, Tool], text: str, right: Collection[str], choose: Choose) -> Any:
    """The ranking of a text without and with the judge, and whether it was asked."""
    ranking = ask(pipeline, text)
    if len(ranking.ranked) < 2 or confidence.level(ranking) not in ("medium", "low"):
        return ranking, ranking, False
    offered = {str(each.tool): summarize(tools[each.tool].definition) for each in ranking.ranked[:OFFERED]}
    return ranking, apply_choice(ranking, choose(text, offered, right)), True


def first(ranking: Ranking) -> str:
    """The tool that an answer shows first, "" where it says that none fits."""
    return ranking.ranked[0].tool if ranking.ranked and confidence.level(ranking) != "none" else ""


def examine(pool: Pool, asked: Sequence[tuple[str, Collection[str]]], choose: Choose) -> Row:
    """Count over tasks with the tools that serve them; () for a task that none serves."""
    pipeline, tools = pool.pipeline(), {tool.id: tool for tool in pool.tools}
    rows = [(right, *judged(pipeline, tools, text, right, choose)) for text, right in asked]
    served, idle = ([row for row in rows if bool(row[0]) is is_served] for is_served in (True, False))
    found: Row = {
        "tasks": len(served),
        "unserved": len(idle),
        "asked": [sum(r[3] for r in each) for each in (served, idle)],
    }
    for name, place in (("without", 1), ("with", 2)):
        found[f"first_{name}"] = sum(first(row[place]) in row[0] for row in served)
        found[f"false_{name}"] = sum(bool(first(row[place])) for row in idle)
    return found


def results(arguments: argparse.Namespace) -> Iterator[Row]:
    """The row."""
    everyday = everyday_tasks(arguments.catalogs)
    tasks: list[tuple[str, Collection[str]]] = [
        (each.query, frozenset[str]().union(*each.gold)) for each in everyday.tasks
    ]
    idle: list[tuple[str, Collection[str]]] = [
        (text, ()) for texts in json.loads(UNSERVED_FILE.read_text("utf-8")).values() for text in texts
    ]
    judge = (
        AskedJudge(JudgeEntry(url=arguments.url, model=arguments.model, key=arguments.key)) if arguments.url else None
    )
    with open_store(":memory:") as store:
        named = [] if arguments.encoder == "none" else resolve_weights(arguments.encoder)
        embedders: Sequence[KeptEncoder] = [open_kept(each, None, store.vectors) for each in named]
        asked = [*sampled(tasks, arguments.most), *sampled(idle, arguments.most)]
        row = examine(Pool(everyday.tools, {}, embedders), asked, judge or know_all)
    if judge is not None and judge.seconds:
        row |= {"seconds_mean": round(fmean(judge.seconds), 2), "unread": judge.unread,
                "tokens_mean": round(fmean(judge.tokens or [0]))}  # fmt: skip
    yield {"judge": arguments.model or "one that knows", **row}


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the row."""
    parser = options.make_parser("bench.retrieval.judge", __doc__)
    parser.add_argument("catalogs", type=Path, help="a folder with what real servers list")
    parser.add_argument("--url", default="", help="as judge.url")
    parser.add_argument("--model", default="", help="as judge.model")
    parser.add_argument("--key", default="", help="as judge.key")
    parser.add_argument("--most", type=int, default=1000, help="so many tasks of each kind; default %(default)s")
    parser.add_argument("--encoder", default="auto", help="as the setting `encoder`; default %(default)s")
    options.add_json(parser)
    arguments = parser.parse_args(argv)
    for row in results(arguments):
        print_row(row, arguments.json)


if __name__ == "__main__":
    main()
