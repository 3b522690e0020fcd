"""Measures what a call over HTTP costs, beside an aggregate on the `mcp` SDK.

    python -m bench.proxy.http_calls [--calls 1000] [--rounds 10] [--foretool COMMAND]

One upstream on stdio (`sdk_server.py`) stands behind `foretool serve --http` and behind the plainest aggregate that the
SDK allows (`sdk_aggregate.py`); the same upstream also serves its own HTTP. One raw client calls all three in turns on
connections that are kept, in both eras; then 32 connections call at a time.

The output is one JSON object for each era and target: p50 and p99 in ms, `added_ms` (p50 less that of the upstream
itself), calls/s with 32 in flight (median of the rounds), RSS and PSS in MiB at the end. For foretool `added_ratio` is
its `added_ms` divided by the aggregate's, and `bars` has the limits that were set.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import processes
from bench.clients.http import HttpClient
from bench.clients.messages import LEGACY, MODERN, said
from bench.metrics import quantile
from bench.options import add_foretool, make_parser, split_names
from bench.reports import Row, times_row

ERAS = {"legacy": LEGACY, "modern": MODERN}
AT_ONCE = 32
WARM_CALLS = 50
START_S = 60.0
UPSTREAM = "up"
MOST_ADDED = 0.5
"""The bar for `added_ratio`."""
MOST_RSS_MIB = 45.0


@dataclass
class Target:
    """A server to be called, with the times and rates of one era."""

    name: str
    tool: str
    port: int
    pid: int
    clients: list[HttpClient] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    async def open(self, version: str) -> None:
        """Open the connections of one session, and warm them."""
        self.milliseconds, self.rates = [], []
        self.clients = [HttpClient(self.port, version) for _ in range(AT_ONCE)]
        for client in self.clients:
            await client.connect()
        await self.clients[0].initialize()
        for client in self.clients[1:]:
            client.join(self.clients[0])
        for client in self.clients:
            await self.call(client)
        for _ in range(WARM_CALLS):
            await self.call(self.clients[0])

    async def close(self) -> None:
        for client in self.clients:
            await client.close()

    async def call(self, client: HttpClient) -> None:
        answer = said(await client.call(self.tool, {"text": "hello"}))
        assert json.loads(answer) == {"text": "hello"}, answer

    async def one_by_one(self, calls: int) -> None:
        for _ in range(calls):
            started = time.perf_counter()
            await self.call(self.clients[0])
            self.milliseconds.append(1e3 * (time.perf_counter() - started))

    async def at_once(self, calls: int) -> None:
        left = iter(range(calls))

        async def work(client: HttpClient) -> None:
            for _ in left:
                await self.call(client)

        started = time.perf_counter()
        await asyncio.gather(*map(work, self.clients))
        self.rates.append(calls / (time.perf_counter() - started))


def end_of(log: Path) -> str:
    """The last characters of a log."""
    return log.read_text("utf-8")[-1000:]


@contextlib.asynccontextmanager
async def started(name: str, tool: str, port: int, command: Sequence[str], log: Path) -> AsyncIterator[Target]:
    """Run a server as long as the block runs."""
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(*command, stdout=file, stderr=file)
    try:
        await processes.wait_until_listening(port, process, START_S)
        yield Target(name, tool, port, process.pid)
    except (TimeoutError, processes.ProcessEnded):
        raise SystemExit(f"{name} does not listen; the end of its log: {end_of(log)}") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def targets(folder: Path, foretool: Sequence[str]) -> AsyncIterator[list[Target]]:
    """Start the upstream itself, foretool, and the aggregate."""
    upstream = [sys.executable, "-m", "bench.servers.sdk_server"]
    root = str(Path(__file__).parents[2])
    entry = {"command": upstream[0], "args": upstream[1:], "cwd": root}
    config = processes.write_config(folder, {UPSTREAM: entry}, policy="full", encoder="none")
    ports = [processes.free_port() for _ in range(3)]
    commands = {
        "upstream": [*upstream, "--http", str(ports[0])],
        "foretool": [*foretool, "serve", "--config", str(config), "--http", f"127.0.0.1:{ports[1]}"],
        "sdk aggregate": [sys.executable, "-m", "bench.servers.sdk_aggregate", str(ports[2]), UPSTREAM, *upstream],
    }
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for (name, command), port in zip(commands.items(), ports, strict=True):
            tool = "echo" if name == "upstream" else f"{UPSTREAM}__echo"
            log = folder / f"{name.replace(' ', '-')}.log"
            made.append(await stack.enter_async_context(started(name, tool, port, command, log)))
        yield made


def rows(era: str, found: Sequence[Target]) -> list[Row]:
    """A row for each target."""
    p50 = {target.name: quantile(target.milliseconds, 0.5) for target in found}
    added = {name: value - p50["upstream"] for name, value in p50.items() if name != "upstream"}
    made = []
    for target in found:
        rss, pss = processes.memory_mib(target.pid)
        row = {
            "test": "http",
            "era": era,
            "target": target.name,
            "calls": len(target.milliseconds),
            **times_row(target.milliseconds, (50, 99), 3),
            "calls_per_s": round(statistics.median(target.rates)),
            "rss_mib": rss,
            "pss_mib": pss,
            "load": processes.load_average(),
        }
        if target.name in added:
            row["added_ms"] = round(added[target.name], 3)
        if target.name == "foretool":
            row["added_ratio"] = round(added["foretool"] / added["sdk aggregate"], 3)
            row["bars"] = {"added_ratio": MOST_ADDED, "rss_mib": MOST_RSS_MIB}
        made.append(row)
    return made


async def measure(arguments: argparse.Namespace, folder: Path) -> None:
    """Measure every era, and print its rows."""
    async with targets(folder, processes.installed(arguments.foretool)) as found:
        for era in arguments.eras:
            for target in found:
                await target.open(ERAS[era])
            share = max(1, arguments.calls // arguments.rounds)
            for turn in range(arguments.rounds):
                # Each round begins with another target, so that none always follows the busiest one.
                order = found[turn % len(found) :] + found[: turn % len(found)]
                for target in order:
                    await target.one_by_one(share)
                for target in order:
                    await target.at_once(share)
            for row in rows(era, found):
                print(json.dumps(row), flush=True)
            for target in found:
                await target.close()


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.proxy.http_calls", __doc__)
    parser.add_argument("--calls", type=int, default=1000, help="of each target in each era; default %(default)s")
    parser.add_argument("--rounds", type=int, default=10, help="default %(default)s")
    parser.add_argument("--eras", default=",".join(ERAS), help="default %(default)s")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    arguments.eras = split_names(parser, "--eras", arguments.eras, ERAS)
    with tempfile.TemporaryDirectory(prefix="bench-http-") as place:
        asyncio.run(measure(arguments, Path(place)))


if __name__ == "__main__":
    main()
