"""Measures what answers of `discover_tools` show: do the first five that a model reads hold the needed tools?

    python -m bench.retrieval.answers DATA [--sets livemcpbench] [--encoder auto]

A real `foretool serve` stands in front of stand-in upstreams with the tools of a set, and is asked for each task of
its `dev` file. An answer is sized by confidence, so it may show fewer tools than five, or none. The output has a JSON
object for each set: the recall of the first five that the ranking has (`ranked_5`), of the first five that the answer
shows (`shown_5`) with the interval of the difference, of all that it shows (`shown`), and of those that it shows with
what a call of them needs (`callable`); and the tokens of the text that a model reads, by level.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from bench import options, processes
from bench.clients.messages import Json
from bench.datasets import Task, read_tasks, read_tools
from bench.learning.simulation import Agent, Setup
from bench.metrics import recall
from bench.reports import Row, print_row
from bench.retrieval import everyday
from foretool.retrieval import tokens
from foretool.retrieval.evaluation import paired_difference

FIVE = 5
MOST = 50
"""As many matches as an answer gives where it is asked for that many: the ranking."""
CALL_S = 120.0


def shown(answer: Json) -> list[list[str]]:
    """The tools that an answer shows, best first, each with those that it names as doing the same."""
    return [[card["name"], *card.get("same", ())] for card in answer["structuredContent"]["matches"]]


def callable_names(answer: Json) -> list[str]:
    """The tools that the text shows with what a call of them needs."""
    text = everyday.text_of(answer)
    cards = answer["structuredContent"]["matches"]
    return [card["name"] for card in cards if "inputSchema" in card or f"{card.get('call')}" in text]


async def ask(place: Setup, tasks: Sequence[Task]) -> list[tuple[Json, Json]]:
    """For each task the answer as a model gets it, and the one with the whole ranking."""
    found = []
    async with Agent.serve(place.command, place.path) as agent:
        await agent.begin()
        await everyday.wait_until_ready(agent, place.by_meaning)
        for task in tasks:
            asked = {"task": " ".join(task.query.split()), "structured": True}
            plain = await agent.call("discover_tools", asked, CALL_S)
            found.append((plain, await agent.call("discover_tools", {**asked, "limit": MOST}, CALL_S)))
    return found


def figures(tasks: Sequence[Task], answers: Sequence[tuple[Json, Json]], names: Mapping[str, str]) -> Row:
    """The row of a set; `names`: the exposed name of each tool of the set."""
    golds = [tuple(frozenset(names[each] for each in need) for need in task.gold) for task in tasks]
    parts: dict[str, list[float]] = {"ranked_5": [], "shown_5": [], "shown": [], "callable": []}
    for gold, (plain, whole) in zip(golds, answers, strict=True):
        told = shown(plain)
        first = [name for group in told[:FIVE] for name in group]
        parts["ranked_5"].append(recall([group[0] for group in shown(whole)], gold, FIVE))
        parts["shown_5"].append(recall(first, gold, len(first)))
        parts["shown"].append(recall(everything := [name for group in told for name in group], gold, len(everything)))
        parts["callable"].append(recall(ready := callable_names(plain), gold, len(ready)))
    sizes = tokens.count([everyday.text_of(plain) for plain, _ in answers])
    levels: dict[str, list[int]] = {}
    for size, (plain, _) in zip(sizes, answers, strict=True):
        levels.setdefault(plain["structuredContent"]["confidence"], []).append(size)
    difference = paired_difference(parts["shown_5"], parts["ranked_5"])
    return {
        "tasks": len(tasks), **{name: round(fmean(values), 3) for name, values in parts.items()},
        "shown_5 minus ranked_5": [round(each, 3) for each in difference],
        "matches": round(fmean(len(shown(plain)) for plain, _ in answers), 1),
        "tokens_mean": round(fmean(sizes)), "tokens_most": max(sizes),
        "levels": {name: [len(each), round(fmean(each))] for name, each in levels.items()},
    }  # fmt: skip


def measure(command: Sequence[str], data: Path, encoder: str) -> Row:
    """Ask a proxy for the tasks of a set."""
    tools = read_tools(data)
    tasks = read_tasks(data / "dev.jsonl", tools)
    with tempfile.TemporaryDirectory(prefix="bench-answers-", ignore_cleanup_errors=True) as folder:
        place = Setup(command, Path(folder), data, "frozen", encoder)
        asyncio.run(place.remember())
        names = {key.removeprefix(f"{data.name}-"): name for key, name in place.names.items()}
        return {"set": data.name, **figures(tasks, asyncio.run(ask(place, tasks)), names)}


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print a row for each set."""
    parser = options.make_parser("bench.retrieval.answers", __doc__)
    parser.add_argument("data", type=Path, help="folder of data sets")
    parser.add_argument("--sets", default="livemcpbench", help="default %(default)s")
    parser.add_argument("--encoder", default="auto", help="as the setting `encoder`; default %(default)s")
    options.add_foretool(parser)
    options.add_json(parser)
    arguments = parser.parse_args(argv)
    for name in arguments.sets.split(","):
        command = processes.installed(arguments.foretool)
        print_row(measure(command, arguments.data / name, arguments.encoder), arguments.json)


if __name__ == "__main__":
    main()
