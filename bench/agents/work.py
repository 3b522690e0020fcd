"""Lets a model work on tasks over real servers, and counts what came of it, arm by arm.

    python -m bench.agents.work RESULTS --catalogs FOLDER --servers FOLDER --gguf FILE [--threads 1]
    AGENT_URL=https://host/v1 AGENT_KEY=... python -m bench.agents.work RESULTS ... --model NAME

`--servers`: where the packages of the real servers are (`bench/agents/world.py` says how they are installed), and with
`--gguf` node-llama-cpp (`npm install --prefix FOLDER node-llama-cpp`). `--catalogs`: `tools/list` answers of real
servers, from which larger catalogues are made. `--peers`: where other proxies are, which then are arms as well
(`bench/agents/peers.py`). RESULTS gets one JSON line a finished task and arm in `rows.jsonl`, and the raw conversation
beside it; a run that was ended goes on where it was. `--figures` prints what is there and runs nothing.

  success   the end of the task, checked by a script
  asked     of the tasks with a needed tool that was not listed at first: those that searched
  needed    share of the steps of the task whose tool was called, also through a bridge
  wrong     calls of other tools
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, get_args

import msgspec
from msgspec import Struct

from bench import processes
from bench.agents.arms import (
    ARMS,
    DISCOVER,
    SEARCH,
    Arm,
    Direct,
    Foretool,
    OwnSearch,
    Servers,
    Stepped,
    named_tools,
    needed_tools,
)  # fmt: skip
from bench.agents.catalogue import read_catalogue, write_config
from bench.agents.decisions import Decision, Turn
from bench.agents.drivers import Driver, add_model, open_driver, seed_of
from bench.agents.later_tasks import LATER
from bench.agents.peers import LOOKS, PEERS, start_peer
from bench.agents.results import Results, read_outcomes
from bench.agents.tasks import SEED, Half, Task, draw
from bench.agents.world import World, serve_page
from bench.options import add_foretool, make_parser, split_names
from bench.reports import Row, difference, line_of, mean_row

TURNS: Final = 8
"""Most decisions of a task, unless the command line says otherwise."""
STUCK: Final = 3
"""A task ends once the same call has had the same result this often: the model is taken to go on like that."""
LONGEST_RESULT: Final = 3000
"""Characters of a result that the model is given; what a search answers is given whole."""
SEARCHES: Final = (DISCOVER, SEARCH, *LOOKS)
FIGURES: Final = ("success", "needed", "wrong", "turns", "searches", "read", "fresh", "written", "seconds")


class Outcome(Struct, frozen=True):
    """What came of one task in one arm."""

    model: str
    half: Half
    size: int
    """Tools of the catalogue."""
    arm: str
    task: str
    kind: str
    repeat: int
    success: bool
    at_first: str
    """`listed` if a tool of each step was on the first list, `named` if the others were named there, or `hidden`."""
    asked: bool
    needed: float
    wrong: int
    turns: int
    searches: int
    read: int
    fresh: int
    """Tokens read in all turns, and those of them that no cache had."""
    written: int
    seconds: float
    ended: bool
    """Whether the model ended the task itself."""

    @property
    def key(self) -> tuple[str, int, str, str, int]:
        return self.model, self.size, self.arm, self.task, self.repeat


async def converse(
    driver: Driver, arm: Arm, task: str, most: int = TURNS, before: Sequence[Turn] = ()
) -> tuple[list[Turn], Decision | None]:
    """Let the model work until it answers; None for the answer if it does not in so many turns. `before`: what was said
    and done since the task was given."""
    turns: list[Turn] = []
    for _ in range(most):
        tools = await arm.tools()
        decision = await asyncio.to_thread(driver.decide, arm.instructions, tools, task, (*before, *turns))
        if not decision.tool:
            return turns, decision
        result = await arm.call(decision.tool, decision.arguments)
        if decision.tool not in SEARCHES:
            result = result[:LONGEST_RESULT]
        turns.append(Turn(decision, result))
        if sum((turn.decision.text, turn.result) == (decision.text, result) for turn in turns) >= STUCK:
            break
    return turns, None


def start_of(task: Task, tools: Sequence[Row]) -> str:
    """Where the needed tools are on the first list."""
    listed, named = {tool["name"] for tool in tools}, named_tools(tools)
    places = ["listed" if listed & {*step} else "named" if named & {*step} else "hidden" for step in task.needs]
    return next((place for place in ("hidden", "named") if place in places), "listed")


def is_unknown(result: str) -> bool:
    """Whether a bridge, ours or a peer's, says that it knows no tool of the name that it was given."""
    return (
        result.startswith("Unknown tool") or "': Unknown tool: " in result or "' not found. Use search_tools" in result
    )


def judge(
    task: Task, world: World, before: object, turns: Sequence[Turn], answer: Decision | None
) -> tuple[bool, float, int]:
    """Whether the task succeeded, the share of its steps whose tool was called, and how many other tools were."""
    said = answer.answer if answer else ""
    success = task.check(world, said) and (task.kind != "none" or world.state() == before)
    useful = {tool for step in task.needs for tool in step}
    # A bridge also takes a name without the prefix of its server, and peers have such names, or a prefix of their own.
    short = {form: tool for tool in useful for form in (tool.partition("__")[2], tool.replace("__", "_", 1))}
    calls = [turn for turn in turns if turn.decision.tool not in SEARCHES]
    meant = ["" if is_unknown(turn.result) else turn.decision.meant for turn in calls]
    meant = [short.get(tool, tool) for tool in meant]
    met = [any(tool in step for tool in meant) for step in task.needs]
    return success, sum(met) / len(met) if met else 1.0, sum(tool not in useful for tool in meant)


class Bench:
    """Runs tasks and keeps what came of them."""

    def __init__(self, results: Path, driver: Driver, world: World, half: Half, turns: int = TURNS) -> None:
        self._results = Results(results, Outcome)
        self._driver = driver
        self._world = world
        self._half = half
        self._turns = turns

    def is_done(self, size: int, arm: str, task: Task, repeat: int) -> bool:
        return self._results.has(self._driver.name, size, arm, task.name, repeat)

    async def run(self, size: int, arm_name: str, arm: Arm, task: Task, repeat: int) -> Outcome:
        """Run one task in one arm and keep it."""
        self._world.reset()
        self._driver.seed = seed_of(task.name, repeat)
        before, started = self._world.state(), time.perf_counter()
        first = await arm.tools()
        text = await arm.prompt(task.text.format_map(self._world.words()))
        first = first or await arm.tools()
        turns, answer = await converse(self._driver, arm, text, self._turns)
        success, needed, wrong = judge(task, self._world, before, turns, answer)
        decisions = [turn.decision for turn in turns] + ([answer] if answer else [])
        searches = sum(turn.decision.tool in SEARCHES for turn in turns)
        outcome = Outcome(
            self._driver.name, self._half, size, arm_name, task.name, task.kind, repeat, success,
            start_of(task, first), searches > 0, needed, wrong, len(decisions), searches,
            sum(each.read for each in decisions), sum(each.read - each.cached for each in decisions),
            sum(each.written for each in decisions), round(time.perf_counter() - started, 1), answer is not None,
        )  # fmt: skip
        self._results.keep(outcome, {"task": text, "tools": first, "turns": turns, "answer": answer})
        return outcome


@asynccontextmanager
async def open_arm(
    name: str, task: Task, servers: Servers | None, command: Sequence[str], config: Path, peers: Path | None = None
) -> AsyncIterator[Arm]:
    """One conversation's tools in one arm. `peers`: where the other proxies are installed."""
    if peers is not None and name in PEERS:
        async with start_peer(PEERS[name], peers, config) as peer:
            yield peer
        return
    if name in ("foretool", "hook", "used", "used_hook"):
        async with Foretool.start(
            command, config, has_hook=name.endswith("hook"), is_used=name.startswith("used")
        ) as arm:
            yield arm
        return
    if name == "step":
        async with Stepped.start(config) as stepped:
            yield stepped
        return
    assert servers is not None
    tools = needed_tools(servers, task) if name == "needed" else servers.tools
    is_search = name in ("search", "told")
    yield OwnSearch(servers, is_told=name == "told") if is_search else Direct(servers, tools)


def tasks_of(half: Half) -> Sequence[Task]:
    """The tasks of a half of the first ones, or the later ones."""
    return LATER if half == "later" else draw(half)


def in_order(
    arms: Sequence[str], repeats: int, tasks: Sequence[Task], *, paired: bool
) -> Iterator[tuple[str, int, Task]]:
    """What is run, in its order. The tasks of an arm come one after the other: they share what a model reads first.
    `paired`: all arms of a task before the next one, so that a run that ends early has the same tasks in each arm; the
    tasks are shuffled then, so that these are of all servers."""
    if not paired:
        yield from itertools.product(arms, range(repeats), tasks)
        return
    shuffled = random.Random(SEED).sample(tasks, len(tasks))
    for repeat, task in itertools.product(range(repeats), shuffled):
        yield from ((arm, repeat, task) for arm in arms)


async def run_all(arguments: argparse.Namespace, driver: Driver, sizes: Sequence[int], arms: Sequence[str]) -> None:
    """Run what is not there yet."""
    results: Path = arguments.results
    command = processes.installed(arguments.foretool)
    with serve_page() as page:
        world = World(results / "world", page)
        world.reset()
        bench, entries = (
            Bench(results, driver, world, arguments.half, arguments.turns),
            world.servers(arguments.servers),
        )
        tasks = [
            task for task in tasks_of(arguments.half) if not arguments.tasks or task.name in arguments.tasks.split(",")
        ]
        for size in sizes:
            catalogue = read_catalogue(arguments.catalogs, size, arguments.longest)
            settings = json.loads(arguments.settings)
            config = write_config(results / f"config-{size}", entries, catalogue, **settings)
            async with Servers.start(entries, catalogue) as servers:
                for arm_name, repeat, task in in_order(arms, arguments.repeats, tasks, paired=arguments.paired):
                    if bench.is_done(size, arm_name, task, repeat):
                        continue
                    async with open_arm(arm_name, task, servers, command, config, arguments.peers) as arm:
                        outcome = await bench.run(size, arm_name, arm, task, repeat)
                    print(msgspec.json.encode(outcome).decode(), flush=True)


def figures(outcomes: Sequence[Outcome], against: str = "all") -> Iterator[Row]:
    """A row for each size and arm, with the difference of its success to the arm `against` on the same tasks."""
    groups: dict[tuple[str, str, int, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.model, outcome.half, outcome.size, outcome.arm), []).append(outcome)
    for (model, half, size, arm), found in groups.items():
        row: Row = {"set": f"{model} {half} {size}", "method": arm, "n": len(found)}
        row |= mean_row("success", [float(each.success) for each in found], 3)
        hidden = [each for each in found if each.at_first != "listed"]
        row["asked"] = f"{sum(each.asked for each in hidden)} of {len(hidden)}"
        for name in FIGURES[1:]:
            row[name] = round(sum(getattr(each, name) for each in found) / len(found), 2)
        other = {(each.task, each.repeat): each for each in groups.get((model, half, size, against), ())}
        pairs = [(each, other[each.task, each.repeat]) for each in found if (each.task, each.repeat) in other]
        if arm != against and pairs:
            ours, theirs = ([float(each.success) for each in side] for side in zip(*pairs, strict=True))
            row[f"over_{against}"] = difference(ours, theirs, 3)
        yield row


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = make_parser("bench.agents.work", __doc__)
    parser.add_argument("results", type=Path, help="the folder of results")
    parser.add_argument("--catalogs", type=Path, help="the folder of tools/list answers of real servers")
    parser.add_argument("--servers", type=Path, help="the folder of the packages")
    parser.add_argument("--peers", type=Path, help="the folder of the other proxies, which are arms as well")
    add_model(parser)
    parser.add_argument("--arms", default=",".join(ARMS), help="default %(default)s")
    parser.add_argument("--sizes", default="47,128", help="tools of the catalogues; default %(default)s")
    parser.add_argument(
        "--longest", type=float, default=math.inf, metavar="N",
        help="only servers beside the tasks' own whose definitions have at most N characters in the mean",
    )  # fmt: skip
    parser.add_argument("--half", default="working", choices=get_args(Half), help="default %(default)s")
    parser.add_argument("--tasks", default="", help="names of tasks; default: all of the half")
    parser.add_argument("--repeats", type=int, default=1, help="default %(default)s")
    parser.add_argument("--paired", action="store_true", help="task by task, not arm by arm")
    parser.add_argument("--turns", type=int, default=TURNS, help="of a task at most; default %(default)s")
    parser.add_argument("--settings", default="{}", metavar="JSON", help="of foretool's config; default %(default)s")
    parser.add_argument(
        "--against", default="all", choices=(*ARMS, *PEERS), help="what differences are to; default %(default)s"
    )
    parser.add_argument("--figures", action="store_true", help="print what is there")
    add_foretool(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments, run what is missing, and print the figures."""
    options = parser()
    arguments = options.parse_args(argv)
    arms = split_names(options, "--arms", arguments.arms, (*ARMS, *PEERS) if arguments.peers else ARMS)
    if not arguments.figures:
        if not arguments.catalogs or not arguments.servers:
            options.error("--catalogs and --servers are needed")
        driver = open_driver(options, arguments, arguments.servers / "node_modules")
        asyncio.run(run_all(arguments, driver, [int(size) for size in arguments.sizes.split(",")], arms))
    for row in figures(read_outcomes(arguments.results, Outcome), arguments.against):
        print(line_of(row))


if __name__ == "__main__":
    main()
