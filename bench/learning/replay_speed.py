"""Measures how long `foretool replay` takes on a log of many tasks.

    python -m bench.learning.replay_speed DATA [--set ultratool] [--tasks 1000] [--encoder auto] [--searched]

A proxy learns the tools of a set once. Then the log gets as many tasks as asked for: those of the train file, again and
again, a session each, over the last six days, each with the search and the calls that the set records. `foretool
replay` plays them under the settings in force and with a larger list, twice: the second finds the vectors of the tasks
in the store. With `--searched` a proxy has searched for the tasks before, as it has in a log that was not written by
hand, so that the store has the vectors of these searches at the first replay. The output is one JSON object a replay:
seconds on the clock, and of all processors.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench import processes
from bench.learning.simulation import Agent, Setup, Task
from bench.options import add_foretool, make_parser
from bench.retrieval import everyday
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Match, SessionRecord, ToolId

SPAN_S = 6 * 86_400.0
CHANGE = "list_tokens=3000"
THINK_S = 0.05
"""Between two searches."""
SETTLED_S = 5.0
"""After the last one, so that its vectors are kept."""


def write_log(path: Path, tasks: Sequence[Task], count: int) -> None:
    """Write so many tasks into the log of a store, each with one search."""
    begin = time.time() - SPAN_S
    with open_store(path) as store:
        for number, task in enumerate(itertools.islice(itertools.cycle(tasks), count)):
            key, at = f"s{number}", begin + number * SPAN_S / count
            store.sessions.begin(SessionRecord(key, "mcp-use", "1", "legacy", "stdio", "", at, at + 30))
            match = Match(ToolId(task.calls[0]), 1, 1.0)
            store.discoveries.add(Discovery(key, at + 1, task.query, (), None, "high", (match,), 400, 2.0))
            store.calls.record([
                Call(key, at + 2 + place, ToolId(tool), "", "bridge", True, "ok", 5.0, True, "")
                for place, tool in enumerate(task.calls)
            ])  # fmt: skip
            store.sessions.end(key, at + 30)


async def search(place: Setup, tasks: Iterable[Task]) -> None:
    """Have a proxy search for tasks, each once."""
    async with Agent.serve(place.command, place.path) as agent:
        await agent.begin()
        await everyday.wait_until_ready(agent, by_meaning=place.by_meaning)
        for text in dict.fromkeys(task.query for task in tasks):
            await agent.call("discover_tools", {"task": text}, everyday.CALL_S)
            await asyncio.sleep(THINK_S)
        await asyncio.sleep(SETTLED_S)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.learning.replay_speed", __doc__)
    parser.add_argument("data", type=Path, nargs="?", help="folder of data sets; default $FORETOOL_DATA")
    parser.add_argument("--set", default="ultratool")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--encoder", default="auto", help="setting of the proxy; default %(default)s")
    parser.add_argument("--searched", action="store_true", help="let a proxy search for the tasks before")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    data = (arguments.data or Path(os.environ.get("FORETOOL_DATA", ""))) / arguments.set
    command = processes.installed(arguments.foretool)
    with tempfile.TemporaryDirectory(prefix="bench-replay-speed-") as folder:
        place = Setup(command, Path(folder), data, "auto", arguments.encoder, epoch_s=86_400)
        asyncio.run(place.remember())
        tasks = place.tasks(data, arguments.tasks)
        if arguments.searched:
            asyncio.run(search(place, tasks))
        write_log(Path(folder) / "foretool.sqlite3", tasks, arguments.tasks)
        line = ["replay", "--json", "--set", CHANGE, "--tasks", str(arguments.tasks), "--config", str(place.path)]
        shared = {
            "test": "replay_speed",
            "set": data.name,
            "encoder": arguments.encoder,
            "searched": arguments.searched,
        }
        for replay in ("first", "second"):
            print(json.dumps({**shared, "replay": replay, **_measure([*command, *line])}), flush=True)


def _measure(line: Sequence[str]) -> dict[str, float]:
    """Run a replay; return what it played and how long it took."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(line, check=True, capture_output=True)
    took_s = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    effect = json.loads(done.stdout)["effect"]
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "tasks": effect["tasks"], "calls": effect["calls"], "took_s": round(took_s, 1), "cpu_s": round(cpu_s, 1),
        "load": processes.load_average(),
    }  # fmt: skip


if __name__ == "__main__":
    main()
