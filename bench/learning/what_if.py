"""Checks whether what `foretool replay` predicts for a change holds when the simulation is run with that change.

    python -m bench.learning.what_if DATA [--sets a,b] [--tasks 150] [--changes "list_tokens=3500;policy=growing"]

The simulation of `bench.learning.simulation` does the tasks of a set twice: with the settings in force, and with the
change. `foretool replay --set` sees only the log of the first run and predicts the second one. A prediction holds if
what happened differs from it by less than the half width of its own 95 % interval. The output is one JSON object for
each set and change: per task the hidden calls, discovery turns and tokens read, as predicted and as they came.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from bench import processes
from bench.clients.messages import Json
from bench.learning.costs import Cost
from bench.learning.simulation import PICK_UP_S, PROMPTED, Agent, Setup, do
from bench.options import add_foretool, make_parser
from foretool.server.hint import HintOptions

SETS = ("ultratool", "bfcl_multi_turn")
CHANGES = "list_tokens=3500;list_tokens=1000;list_fill=false;policy=growing"
BLOCK = 25
FIGURES = ("hidden", "discoveries", "tokens")


class Client(Agent):
    """An agent under a name that is known to list again when it is told to."""

    identity: ClassVar[Json] = {"name": "mcp-use", "version": "1"}


def read_change(text: str) -> tuple[str, Any]:
    """The setting and its value."""
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


async def simulate(
    command: Sequence[str], folder: Path, data: Path, policy: str, count: int, encoder: str, settings: Mapping[str, Any]
) -> tuple[Setup, list[tuple[float, float, float]]]:
    """Do the tasks; return the folder's set-up, and for each task its hidden calls, discoveries and tokens read."""
    given = {"policy": policy.partition("+")[0], **settings}
    place = Setup(command, folder, data, given.pop("policy"), encoder, given.pop("list_fill", True), **given)
    await place.remember()
    hook = HintOptions(str(place.path)) if policy.endswith(PROMPTED) else None
    found: list[tuple[float, float, float]] = []
    tasks = place.tasks(data, count)
    async with Client.serve(command, place.path) as agent:
        agent.may_grow = settings.get("policy", policy).startswith("growing")
        for number, task in enumerate(tasks, 1):
            cost = Cost()
            await do(agent, task, place.schemas, cost, hook)
            # The last turn, in which a model answers its user, is on no record.
            listed = cost.list_tokens + cost.grown_tokens
            said = cost.answer_tokens + cost.hook_tokens + cost.hint_tokens
            found.append((cost.hidden, cost.discoveries, cost.read_tokens - listed - said))
            if number % BLOCK == 0 and number < len(tasks):
                place.begin_epoch()
                await asyncio.sleep(PICK_UP_S)
    return place, found


def predict(command: Sequence[str], path: Path, change: str, count: int) -> Json:
    """What `foretool replay` says of a change."""
    arguments = ["replay", "--json", "--set", change, "--tasks", str(count), "--config", str(path)]
    done = subprocess.run([*command, *arguments], check=True, capture_output=True)
    return dict(json.loads(done.stdout)["effect"])


def compare(predicted: Json, before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> Json:
    """The figures of a prediction beside what happened, and whether it holds."""
    found: Json = {}
    for place, name in enumerate(FIGURES):
        was, came = (sum(each[place] for each in run) / len(run) for run in (before, after))
        row = {"now": round(was, 3), "replayed_now": predicted["now"][name], "came": round(came, 3),
               "predicted": predicted["then"][name]}  # fmt: skip
        if name in predicted:
            low, mean, high = (predicted[name][end] for end in ("low", "mean", "high"))
            difference = came - was
            row |= {
                "difference": round(difference, 3), "predicted_difference": mean, "interval": [low, high],
                "holds": abs(difference - mean) <= max((high - low) / 2, 1e-9),
            }  # fmt: skip
        found[name] = row
    return found


async def check(command: Sequence[str], data: Path, arguments: argparse.Namespace) -> None:
    """Simulate a set with every change, and print a row for each."""
    options = (data, arguments.policy, arguments.tasks, arguments.encoder)
    with tempfile.TemporaryDirectory(prefix="bench-what-if-") as folder:
        place, before = await simulate(command, make(folder, "now"), *options, {})
        for number, change in enumerate(arguments.changes.split(";")):
            started = time.perf_counter()
            predicted = predict(command, place.path, change, arguments.tasks)
            took_s = round(time.perf_counter() - started, 1)
            _, after = await simulate(command, make(folder, str(number)), *options, dict([read_change(change)]))
            row = {"test": "what_if", "set": data.name, "policy": arguments.policy, "change": change,
                   "tasks": len(before), "replay_s": took_s}  # fmt: skip
            print(json.dumps({**row, **compare(predicted, before, after)}), flush=True)


def make(folder: str, name: str) -> Path:
    """A new folder in a folder."""
    place = Path(folder) / name
    place.mkdir()
    return place


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and check."""
    parser = make_parser("bench.learning.what_if", __doc__)
    parser.add_argument("data", type=Path, nargs="?", help="folder of data sets; default $FORETOOL_DATA")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--policy", default="frozen", help="the policy in force; default %(default)s")
    parser.add_argument("--changes", default=CHANGES, help="changes to check, each after a semicolon")
    parser.add_argument("--tasks", type=int, default=150)
    parser.add_argument("--encoder", default="none", help="setting of the proxy; default %(default)s")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    data = arguments.data or Path(os.environ.get("FORETOOL_DATA", ""))
    command = processes.installed(arguments.foretool)
    for name in arguments.sets.split(","):
        asyncio.run(check(command, data / name, arguments))


if __name__ == "__main__":
    main()
