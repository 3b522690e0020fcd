"""Lets a model work on the multi-turn conversations of BFCL over that set's own classes, judged by its own checker.

    pip install --no-deps --target FOLDER bfcl-eval mpmath
    python -m bench.agents.bfcl RESULTS --package FOLDER --modules NODE_MODULES --gguf MODEL.gguf [--tasks 150]
    AGENT_URL=https://host/v1 AGENT_KEY=... python -m bench.agents.bfcl RESULTS --package FOLDER --model NAME

The eight classes are eight servers with 128 tools in all; nothing of the set is kept here. A conversation ends with the
first turn that the checker finds wrong: state of the classes, and results that the turn asks for. The arms are those
of `bench.agents.work`; the hook is asked about each of the user's messages. A run that was ended goes on where it was.

  success   conversations that are right to the end
  first     conversations whose first turn is right
  right     share of the turns that are right, of all turns
  needed    share of the tools of the turns reached that were called, also through a bridge
  wrong     calls of other tools
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from bench import processes
from bench.agents.arms import ARMS, Arm, Servers
from bench.agents.decisions import Decision, Turn
from bench.agents.drivers import Driver, add_model, open_driver, seed_of
from bench.agents.results import Results, read_outcomes
from bench.agents.tasks import SEED, Task
from bench.agents.work import SEARCHES, TURNS, converse, is_unknown, open_arm
from bench.clients.messages import Json
from bench.options import add_foretool, make_parser, split_names
from bench.reports import Row, difference, line_of, mean_row
from bench.servers.bfcl import load, read_tools

QUESTIONS: Final = "bfcl_eval/data/BFCL_v4_multi_turn_base.json"
ANSWERS: Final = "bfcl_eval/data/possible_answer/BFCL_v4_multi_turn_base.json"
NAMES: Final = {
    "GorillaFileSystem": "files", "MathAPI": "math", "MessageAPI": "messages", "TwitterAPI": "posts",
    "TicketAPI": "tickets", "TradingBot": "trading", "TravelAPI": "travel", "VehicleControlAPI": "car",
}  # fmt: skip
"""The servers, by class."""
TASKS: Final = 150
ROOT: Final = Path(__file__).parents[2]
UNANSWERED: Final = Decision(text='{"answer": ""}')
"""What stands for the answer of a model that gave none."""


class Conversation(Struct, frozen=True):
    """One task of the set."""

    entry: Json
    """As the set has it."""
    said: tuple[str, ...]
    """What the user says, turn by turn."""
    calls: tuple[tuple[str, ...], ...]
    """By turn, the calls that it takes."""
    needs: tuple[tuple[str, ...], ...]
    """By turn, the tools of these calls, under the names that foretool gives them."""

    @property
    def name(self) -> str:
        return str(self.entry["id"])


class Outcome(Struct, frozen=True):
    """What came of one conversation in one arm."""

    model: str
    arm: str
    task: str
    repeat: int
    success: bool
    first: bool
    right: float
    needed: float
    wrong: int
    turns: int
    searches: int
    read: int
    fresh: int
    """Tokens read in all decisions, and those of them that no cache had."""
    seconds: float

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.model, self.arm, self.task, self.repeat


FIGURES: Final = ("success", "first", "right", "needed", "wrong", "turns", "searches", "read", "fresh", "seconds")


def read_catalogue(package: Path) -> dict[str, list[Json]]:
    """The definitions by server."""
    _, files = load(package)
    return {name: read_tools(package, files[kind]) for kind, name in NAMES.items()}


def read_conversations(package: Path, count: int) -> list[Conversation]:
    """A seeded draw of the set's conversations."""
    entries, answers = (
        [json.loads(line) for line in (package / file).read_text("utf-8").splitlines()] for file in (QUESTIONS, ANSWERS)
    )
    catalogue = read_catalogue(package)
    calls = {answer["id"]: answer["ground_truth"] for answer in answers}

    def read(entry: Json) -> Conversation:
        servers = [NAMES[kind] for kind in entry["involved_classes"]]
        full = {tool["name"]: f"{server}__{tool['name']}" for server in servers for tool in catalogue[server]}
        turns = calls[entry["id"]]
        return Conversation(
            entry,
            tuple(turn[0]["content"] for turn in entry["question"]),
            tuple(map(tuple, turns)),
            tuple(tuple(full[call.partition("(")[0]] for call in turn) for turn in turns),
        )

    return list(map(read, random.Random(SEED).sample(entries, min(count, len(entries)))))


class Checker:
    """The set's own checker."""

    def __init__(self, package: Path) -> None:
        load(package)
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import (  # type: ignore[import-not-found]
            multi_turn_checker,
        )

        self._check = multi_turn_checker
        self._checks = 0

    def is_right(self, task: Conversation, calls: Sequence[Sequence[str]]) -> bool:
        """Whether the first turns are right; `calls`: by turn, what reached the servers."""
        self._checks += 1
        made = [[[call] for call in turn] for turn in calls]
        truth = [list(turn) for turn in task.calls[: len(calls)]]
        category = task.entry["id"].rsplit("_", 1)[0]
        return bool(self._check(made, truth, task.entry, category, f"check_{self._checks}")["valid"])


class Bench:
    """Runs conversations and keeps what came of them."""

    def __init__(self, results: Path, driver: Driver, checker: Checker, most: int) -> None:
        self._results = Results(results, Outcome)
        self._folder = results
        self._driver = driver
        self._checker = checker
        self._most = most

    def is_done(self, arm: str, task: Conversation, repeat: int) -> bool:
        return self._results.has(self._driver.name, arm, task.name, repeat)

    def begin(self, task: Conversation) -> None:
        """Let the classes begin anew: the set makes the name of a run part of the code that it evaluates."""
        (self._folder / "calls.txt").write_text("", "utf-8")
        (self._folder / "task.json").write_text(json.dumps({**task.entry, "run": f"run_{time.time_ns()}"}), "utf-8")

    def called(self) -> list[str]:
        """What has reached the servers since the conversation began."""
        return [json.loads(line) for line in (self._folder / "calls.txt").read_text("utf-8").splitlines()]

    async def run(self, name: str, arm: Arm, task: Conversation, repeat: int) -> Outcome:
        """Hold one conversation in one arm and keep it."""
        self._driver.seed = seed_of(task.name, repeat)
        self.begin(task)
        started, first, is_right = time.perf_counter(), "", True
        said: list[Turn] = []
        calls: list[list[str]] = []
        await arm.tools()
        for message in task.said:
            text = await arm.prompt(message)
            if said:
                said[-1] = Turn(said[-1].decision, text)
            first = first or text
            turns, answer = await converse(self._driver, arm, first, self._most, said)
            said += [*turns, Turn(answer or UNANSWERED, "")]
            calls.append(self.called()[sum(map(len, calls)) :])
            is_right = self._checker.is_right(task, calls)
            if not is_right:
                break
        right = len(calls) - (not is_right)
        outcome = self._outcome(name, task, repeat, said, len(calls), right, time.perf_counter() - started)
        self._results.keep(outcome, {"task": first, "said": said, "calls": calls})
        return outcome

    def _outcome(
        self, arm: str, task: Conversation, repeat: int, said: Sequence[Turn], reached: int, right: int, seconds: float
    ) -> Outcome:
        decisions = [turn.decision for turn in said]
        needed = [tool for turn in task.needs[:reached] for tool in turn]
        full = {tool.partition("__")[2]: tool for tool in needed}
        calls = [turn for turn in said if turn.decision.tool and turn.decision.tool not in SEARCHES]
        called = [
            "" if is_unknown(turn.result) else full.get(turn.decision.meant, turn.decision.meant) for turn in calls
        ]
        return Outcome(
            self._driver.name, arm, task.name, repeat, right == len(task.said), right > 0, right / len(task.said),
            sum(tool in called for tool in needed) / len(needed) if needed else 1.0,
            sum(tool not in needed for tool in called), len(decisions),
            sum(each.tool in SEARCHES for each in decisions), sum(each.read for each in decisions),
            sum(each.read - each.cached for each in decisions), round(seconds, 1),
        )  # fmt: skip


def figures(outcomes: Sequence[Outcome], against: str) -> Iterator[Row]:
    """A row for each arm, with the differences of its turns that are right to the arm `against`."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.model, outcome.arm), []).append(outcome)
    for (model, arm), found in groups.items():
        row: Row = {"set": f"bfcl multi turn, {model}", "method": arm, "n": len(found)}
        row |= mean_row("first", [float(each.first) for each in found], 3)
        row |= {name: round(sum(getattr(each, name) for each in found) / len(found), 3) for name in FIGURES}
        other = {(each.task, each.repeat): each for each in groups.get((model, against), ())}
        pairs = [(each, other[each.task, each.repeat]) for each in found if (each.task, each.repeat) in other]
        if arm != against and pairs:
            for name in ("first", "right", "needed"):
                ours, theirs = ([float(getattr(each, name)) for each in side] for side in zip(*pairs, strict=True))
                row[f"{name}_over_{against}"] = difference(ours, theirs, 3)
        yield row


async def run_all(arguments: argparse.Namespace, driver: Driver, arms: Sequence[str]) -> None:
    """Run what is not there yet, all arms of a conversation before the next one."""
    results, package = arguments.results.resolve(), arguments.package.resolve()
    command = processes.installed(arguments.foretool)
    bench = Bench(results, driver, Checker(package), arguments.turns)
    entries = {
        name: {
            "command": sys.executable,
            "args": ["-m", "bench.servers.bfcl", str(package), kind, str(results)],
            "env": {"PYTHONPATH": str(ROOT)},
        }
        for kind, name in NAMES.items()
    }
    config = processes.write_config(results, entries)
    tasks = read_conversations(package, arguments.tasks)
    async with Servers.start(entries, read_catalogue(package)) as servers:
        for repeat, task, name in itertools.product(range(arguments.repeats), tasks, arms):
            if bench.is_done(name, task, repeat):
                continue
            bench.begin(task)
            needs = tuple({(tool,): None for turn in task.needs for tool in turn})
            wanted = Task(task.name, "steps", "", needs, lambda world, answer: False)
            async with open_arm(name, wanted, servers, command, config) as arm:
                outcome = await bench.run(name, arm, task, repeat)
            print(msgspec.json.encode(outcome).decode(), flush=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = make_parser("bench.agents.bfcl", __doc__)
    parser.add_argument("results", type=Path, help="the folder of results")
    parser.add_argument("--package", type=Path, help="where bfcl-eval and mpmath are installed")
    parser.add_argument("--modules", type=Path, help="the node_modules that hold node-llama-cpp")
    add_model(parser)
    parser.add_argument("--arms", default="needed,told,foretool,hook", help="default %(default)s")
    parser.add_argument("--tasks", type=int, default=TASKS, help="conversations; default %(default)s")
    parser.add_argument("--repeats", type=int, default=1, help="default %(default)s")
    parser.add_argument("--turns", type=int, default=TURNS, help="decisions a turn at most; default %(default)s")
    parser.add_argument("--against", default="told", choices=ARMS, help="what differences are to; default %(default)s")
    parser.add_argument("--figures", action="store_true", help="print what is there")
    add_foretool(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments, hold what is missing, and print the figures."""
    options = parser()
    arguments = options.parse_args(argv)
    arms = split_names(options, "--arms", arguments.arms, ARMS)
    if not arguments.figures:
        if not arguments.package:
            options.error("--package is needed")
        asyncio.run(run_all(arguments, open_driver(options, arguments, arguments.modules), arms))
    for row in figures(read_outcomes(arguments.results, Outcome), arguments.against):
        print(line_of(row))


if __name__ == "__main__":
    main()
