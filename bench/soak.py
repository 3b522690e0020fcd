"""Whether a proxy that works for hours grows: `python -m bench.soak [--calls 200000] [--sessions 8] [--python PYTHON]`.

`foretool serve --http` over several stdio upstreams, asked by as many clients as `--sessions`, every second one of the
modern era, each over `--connections` connections. Every call carries a text of its own and its answer must bring that
text back from the tool that was meant; in between, lists and searches. Memory, open files, threads, event-loop tasks
and objects are sampled as calls go by. Prints one JSON object: growth from the end of the warm-up to the last sample.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import processes
from bench.clients import LEGACY, MODERN, Failed, HttpClient, said

WARM_UP = 0.1
"""Share of the calls before the first sample that counts."""
SAMPLES = 40
ASIDE_EVERY = 500
"""After so many calls a connection lists, and searches."""
START_S = 30.0
WATCHED = str(Path(__file__).with_name("watched.py"))


@dataclass
class Work:
    """What is to be done, and what has come of it."""

    calls: int
    deadline: float
    """`time.monotonic` after which nothing new is asked."""
    servers: Sequence[str]
    begun: int = 0
    done: int = 0
    lists: int = 0
    searches: int = 0
    wrong: list[str] = field(default_factory=list)
    """Calls that failed or whose answer was not theirs."""
    milliseconds: list[float] = field(default_factory=list)

    def next(self) -> int | None:
        """The number of the next call, if there is one left."""
        if self.begun >= self.calls or time.monotonic() > self.deadline:
            return None
        self.begun += 1
        return self.begun


async def work_on(work: Work, client: HttpClient) -> None:
    """Call until nothing is left."""
    while (number := work.next()) is not None:
        started = time.perf_counter()
        try:
            await call(work, client, number)
        except (Failed, TimeoutError) as error:
            work.wrong.append(f"call {number}: {error!r}"[:300])
        work.milliseconds.append(1e3 * (time.perf_counter() - started))
        work.done += 1
        if number % ASIDE_EVERY == 0:
            await aside(work, client, number)


async def call(work: Work, client: HttpClient, number: int) -> None:
    """One call of one of the upstreams' tools. Raises `Failed` unless its answer is its own."""
    server = work.servers[number % len(work.servers)]
    tool = f"{server}_t{number % 9 + 1}"
    # From a few bytes to some kilobytes, so that no buffer is of one size.
    sent = {"text": f"{id(client)}-{number}-" + "x" * (number % 37) ** 2}
    got = json.loads(said(await client.call(f"{server}__{tool}", sent)))
    if got != {"server": server, "tool": tool, "arguments": sent}:
        raise Failed(f"the answer is that of {got['server']}.{got['tool']}")


async def aside(work: Work, client: HttpClient, number: int) -> None:
    """A list and a search."""
    try:
        await client.ask("tools/list")
        work.lists += 1
        found = await client.call(
            "discover_tools", {"task": f"echo text as {work.servers[number % len(work.servers)]}"}
        )
        work.searches += bool(found["structuredContent"]["matches"])
    except (Failed, TimeoutError) as error:
        work.wrong.append(f"list or search after {number}: {error!r}"[:300])


@dataclass
class Watch:
    """Samples of the proxy, by what the system sees and what it counts of itself."""

    pid: int
    counts: Path
    storage: Path
    samples: list[dict[str, Any]] = field(default_factory=list)

    async def sample(self, done: int) -> None:
        before = self._lines()
        os.kill(self.pid, signal.SIGUSR1)
        async with asyncio.timeout(START_S):
            while len(lines := self._lines()) <= len(before):
                await asyncio.sleep(0.05)
        own = json.loads(lines[-1])
        rss, pss = processes.memory_mib(self.pid)
        self.samples.append(
            {
                "calls": done,
                "rss_mib": rss,
                "pss_mib": pss,
                "open_files": processes.open_files(self.pid),
                "threads": processes.threads(self.pid),
                "children": processes.children(self.pid),
                "tasks": own["tasks"],
                "objects": own["objects"],
                "storage_mib": round(sum(each.stat().st_size for each in self._stored()) / 2**20, 1),
            }
        )

    def _lines(self) -> list[str]:
        return self.counts.read_text("utf-8").splitlines() if self.counts.exists() else []

    def _stored(self) -> list[Path]:
        return list(self.storage.parent.glob(self.storage.name + "*"))

    async def follow(self, work: Work) -> None:
        """A sample after every fortieth of the calls, until they are done."""
        while True:
            await asyncio.sleep(0.1)
            if work.done >= len(self.samples) * work.calls / SAMPLES:
                await self.sample(work.done)


def growth(samples: Sequence[dict[str, Any]], calls: int) -> dict[str, Any]:
    """For each figure: its value after the warm-up, at the end, the most, and the slope per 100,000 calls."""
    kept = [sample for sample in samples if sample["calls"] >= WARM_UP * calls]
    if len(kept) < 2:
        return {}
    at = [sample["calls"] for sample in kept]
    return {
        key: {
            "warm": kept[0][key],
            "end": kept[-1][key],
            "most": max(sample[key] for sample in kept),
            "per_100000_calls": round(1e5 * slope(at, [sample[key] for sample in kept]), 2),
        }
        for key in kept[0]
        if key != "calls"
    }


def slope(at: Sequence[float], values: Sequence[float]) -> float:
    """Of the straight line with the least squares."""
    mean_at, mean = sum(at) / len(at), sum(values) / len(values)
    width = sum((x - mean_at) ** 2 for x in at)
    return sum((x - mean_at) * (y - mean) for x, y in zip(at, values, strict=True)) / width if width else 0.0


async def clients(port: int, sessions: int, connections: int) -> list[list[HttpClient]]:
    """For each session its connections, of which the first opened it."""
    made = []
    for at in range(sessions):
        session = [HttpClient(port, MODERN if at % 2 else LEGACY) for _ in range(connections)]
        for client in session:
            await client.connect()
        await session[0].initialize()
        for client in session[1:]:
            client.join(session[0])
        made.append(session)
    return made


async def listening(port: int, proxy: asyncio.subprocess.Process) -> None:
    """Wait until the proxy listens there. Raises `Failed` if it ended instead, and `TimeoutError`."""
    async with asyncio.timeout(START_S):
        while True:
            if proxy.returncode is not None:
                raise Failed(f"the proxy ended with status {proxy.returncode}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


async def soak(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Start the proxy, do the work, end the proxy."""
    servers = [f"u{at:02d}" for at in range(arguments.upstreams)]
    path = processes.write_config(folder, {name: processes.upstream(name) for name in servers}, policy="full")
    port = processes.free_port()
    counts = folder / "counts.jsonl"
    command = [arguments.python, "-P", WATCHED, str(counts), "serve", "--config", str(path)]
    with (folder / "log").open("wb") as log:
        proxy = await asyncio.create_subprocess_exec(*command, "--http", f"127.0.0.1:{port}", stderr=log)
    try:
        await listening(port, proxy)
        found = await measured(arguments, servers, port, Watch(proxy.pid, counts, folder / "foretool.sqlite3"))
    except Failed as error:
        raise SystemExit(f"{error}: {(folder / 'log').read_text('utf-8')[-500:]}") from None
    finally:
        if proxy.returncode is None:
            proxy.terminate()
        status = await asyncio.wait_for(proxy.wait(), START_S)
    log_lines = (folder / "log").read_text("utf-8").splitlines()
    return {**found, "exit_status": status, "log_lines": len(log_lines), "log_tail": log_lines[-3:]}


async def measured(arguments: argparse.Namespace, servers: Sequence[str], port: int, watch: Watch) -> dict[str, Any]:
    """Every session works until the calls or the time are used up."""
    sessions = await clients(port, arguments.sessions, arguments.connections)
    work = Work(arguments.calls, time.monotonic() + arguments.limit_s, servers)
    follower = asyncio.create_task(watch.follow(work))
    started = time.monotonic()
    await asyncio.gather(*(work_on(work, client) for session in sessions for client in session))
    took = time.monotonic() - started
    follower.cancel()
    await asyncio.sleep(1)
    await watch.sample(work.done)
    for session in sessions:
        await session[0].end()
        for client in session:
            await client.close()
    await asyncio.sleep(1)
    await watch.sample(work.done)
    *during, after = watch.samples
    return {
        "test": "soak",
        "calls": work.done,
        "of": work.calls,
        "wrong": len(work.wrong),
        "wrong_first": work.wrong[:3],
        "lists": work.lists,
        "searches": work.searches,
        "sessions": {"legacy": (arguments.sessions + 1) // 2, "modern": arguments.sessions // 2},
        "connections": arguments.sessions * arguments.connections,
        "upstreams": len(servers),
        "seconds": round(took, 1),
        "calls_per_s": round(work.done / took),
        "p50_ms": round(processes.quantile(work.milliseconds, 0.5), 2),
        "p99_ms": round(processes.quantile(work.milliseconds, 0.99), 2),
        "growth": growth(during, work.calls),
        "rss_mib": [sample["rss_mib"] for sample in during],
        "after_the_clients_left": after,
        "load": processes.load_average(),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and soak."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--calls", type=int, default=200_000, help="default %(default)s")
    parser.add_argument("--sessions", type=int, default=8, help="default %(default)s")
    parser.add_argument("--connections", type=int, default=2, help="of each session; default %(default)s")
    parser.add_argument("--upstreams", type=int, default=5, help="default %(default)s")
    parser.add_argument("--limit-s", type=float, default=900.0, help="nothing is asked later; default %(default)s")
    parser.add_argument("--python", default=sys.executable, help="of the foretool to measure; default: this one")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="bench-soak-") as place:
        print(json.dumps(asyncio.run(soak(arguments, Path(place)))))


if __name__ == "__main__":
    main()
