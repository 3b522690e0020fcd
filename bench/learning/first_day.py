"""Measures what priors of another store bring on the first day: hidden calls, discovery turns and tokens.

    python -m bench.learning.first_day DATA [--sets a,b] [--elsewhere 200] [--tasks 60]

Tasks of a set were done elsewhere: their calls are written into a store, and `foretool export-priors` writes a file.
Then the agent of `bench.learning.simulation` does other tasks of the set over a store in which nothing was called, once
without the file and once after `foretool import-priors`. No list moves within the day, and nothing is learned. The
output is one JSON object for each run, then one for each set and policy with the mean difference a task
and its 95 % interval.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from bench import processes
from bench.clients.messages import Json
from bench.learning.costs import Cost, block_of
from bench.learning.simulation import Agent, Setup, Task, do
from bench.options import add_foretool, make_parser
from foretool.retrieval.evaluation import interval
from foretool.storage.opening import open_store
from foretool.storage.records import Call, SessionRecord, ToolId

SETS = ("ultratool", "bfcl_multi_turn")
START = 1_700_000_000.0
"""When the tasks elsewhere began; each takes an hour."""


def record(place: Setup, tasks: Sequence[Task]) -> None:
    """Write into the store of a setup that these tasks were done, each in a session of its own."""
    with open_store(place.folder / "foretool.sqlite3", busy_ms=5000) as store, store.atomic():
        servers = {name: server for name, (server, _) in store.catalog.exposed_names().items()}
        for number, task in enumerate(tasks):
            key, at = f"elsewhere{number}", START + 3600.0 * number
            store.sessions.begin(SessionRecord(key, "bench", "1", "legacy", "stdio", "", at, at + 60))
            for turn, name in enumerate(task.calls):
                tool = ToolId(name)
                call = Call(key, at + 1 + turn, tool, servers[tool], "name", False, "ok", 1.0, True, "{}")
                store.calls.record([call])


def tell(place: Setup, *arguments: str) -> Json:
    """Run a command of foretool over a setup; what it prints."""
    command = [*place.command, *arguments, "--json", "--config", str(place.path)]
    done = subprocess.run(command, check=True, capture_output=True)
    told: Json = json.loads(done.stdout)
    return told


async def day(place: Setup, tasks: Sequence[Task], policy: str) -> Cost:
    """Do the tasks of the first day; what they cost."""
    cost = Cost()
    async with Agent.serve(place.command, place.path) as agent:
        agent.may_grow = policy == "growing"
        for task in tasks:
            await do(agent, task, place.schemas, cost)
    return cost


async def run(command: Sequence[str], data: Path, policy: str, elsewhere: int, count: int, encoder: str) -> None:
    """Print the first day without priors and with those of the tasks elsewhere."""
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory(prefix="bench-first-day-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "priors.json"
        for name in ("without", "with"):
            (Path(folder) / name).mkdir()
            place = Setup(command, Path(folder) / name, data, policy, encoder)
            await place.remember()
            tasks = place.tasks(data, elsewhere + count)
            brought: Json = {}
            if name == "with":
                other = Path(folder) / "elsewhere"
                other.mkdir()
                source = Setup(command, other, data, policy, "none")
                await source.remember()
                record(source, tasks[:elsewhere])
                written = tell(source, "export-priors", str(file))
                brought = tell(place, "import-priors", str(file), "--yes")
                brought = {key: brought[key] for key in ("known", "tools", "followed")} | {"bytes": written["bytes"]}
            cost = await day(place, tasks[elsewhere:], policy)
            row = {"test": "first_day", "set": data.name, "policy": policy, "priors": name, **brought}
            print(json.dumps({**row, **block_of(cost, len(tasks) - elsewhere)}), flush=True)
            costs.append(cost)
    print(json.dumps({"test": "first_day", "set": data.name, "policy": policy, **difference(*costs)}), flush=True)


def difference(before: Cost, after: Cost) -> Json:
    """Return what changes: hidden calls, and discovery turns and tokens read a task, each as low, mean and high."""
    found: Json = {"hidden": [before.hidden, after.hidden], "calls": before.calls}
    for place, name in ((0, "discoveries"), (2, "read_tokens")):
        gains = [new[place] - old[place] for old, new in zip(per_task(before), per_task(after), strict=True)]
        low, high = interval(gains)
        found[name] = [round(low, 3), round(sum(gains) / max(len(gains), 1), 3), round(high, 3)]
    return found


def per_task(cost: Cost) -> list[tuple[int, ...]]:
    """Return what each task took; a `Cost` keeps how it added up."""
    sums = [(0, 0, 0), *cost.by_task]
    return [tuple(b - a for a, b in zip(*pair, strict=True)) for pair in pairwise(sums)]


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.learning.first_day", __doc__)
    parser.add_argument("data", type=Path, nargs="?", help="folder of data sets; default $FORETOOL_DATA")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--policies", default="frozen,growing")
    parser.add_argument(
        "--elsewhere", type=int, default=200, help="tasks that were done elsewhere; default %(default)s"
    )
    parser.add_argument("--tasks", type=int, default=60, help="tasks of the first day; default %(default)s")
    parser.add_argument("--encoder", default="auto", help="setting of the proxy; default %(default)s")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    data = arguments.data or Path(os.environ.get("FORETOOL_DATA", ""))
    if not data.is_dir() or data == Path():
        print("left out: FORETOOL_DATA names no folder")
        return
    command = processes.installed(arguments.foretool)
    for name in arguments.sets.split(","):
        for policy in arguments.policies.split(","):
            options = (policy, arguments.elsewhere, arguments.tasks, arguments.encoder)
            asyncio.run(run(command, data / name, *options))


if __name__ == "__main__":
    main()
