"""Measures a proxy whose servers change their lists every second: pings meanwhile, the longest step, and the disk.

    python -m bench.growth.changing [--servers 10,50,200] [--tools 25] [--seconds 30] [--trust pin,auto]

Each server announces every second that its list has changed, and then two of its definitions have. The proxy asks a
server ten times at once and then every five seconds, so the first seconds are the busiest; they are measured too. A
client pings every 20 ms from the moment when all tools are known. `cpu` is what the thread of the loop has worked
between a ping and its answer, whatever else runs on the machine; `step` is as in `bench.growth.catalogue`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench import processes
from bench.clients.stdio import StdioClient
from bench.datasets import Json
from bench.growth import tables
from bench.growth.catalogue import start
from bench.metrics import quantile
from bench.options import make_parser
from bench.proxy.many_tools import until_known

CHANGE_S: Final = 1.0
PING_S: Final = 0.02
PATIENCE_S: Final = 60.0


async def ping(client: StdioClient, seconds: float) -> list[tuple[float, float]]:
    """Ping until the time is over; the milliseconds of each ping by the clock, and by the work of the loop."""
    found = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        worked, began = processes.loop_cpu_ms(client.pid), time.perf_counter()
        await client.ask("ping", {}, PATIENCE_S)
        found.append((1e3 * (time.perf_counter() - began), processes.loop_cpu_ms(client.pid) - worked))
        await asyncio.sleep(PING_S)
    return found


async def measure(config: Path, servers: int, tools: int, seconds: float) -> Json:
    """Return the figures of one number of servers."""
    steps, store = config.with_name("steps.jsonl"), config.with_name("foretool.sqlite3")
    client = await start(steps, config)
    try:
        await client.initialize()
        await until_known(client, store, servers * tools)
        await client.tools()
        began, worked = time.time(), processes.cpu_s(client.pid)
        pings = await ping(client, seconds)
        share = (processes.cpu_s(client.pid) - worked) / (time.time() - began)
        rss, _ = processes.memory_mib(client.pid)
    finally:
        await client.stop(PATIENCE_S)
    longest = max(tables.read_steps(steps, began), default=(0.0, ""))
    waits, cpu = zip(*pings, strict=True)
    return {
        "pings": len(pings),
        "ping p50 ms": quantile(waits, 0.5),
        "ping p99 ms": quantile(waits, 0.99),
        "ping p50 cpu ms": quantile(cpu, 0.5),
        "ping p99 cpu ms": quantile(cpu, 0.99),
        "longest ping cpu ms": max(cpu),
        "longest step ms": longest[0],
        "in": longest[1],
        "share of a core": share,
        **count_versions(store),
        "RSS MiB": rss,
    }


def count_versions(store: Path) -> Json:
    """How many definitions are kept, of all tools and of one, and how many lists were saved in all."""
    with sqlite3.connect(store) as connection:
        (kept,) = connection.execute("SELECT count(*) FROM tool_versions").fetchone()
        sql = "SELECT max(n) FROM (SELECT count(*) AS n FROM tool_versions GROUP BY upstream, name)"
        (most,) = connection.execute(sql).fetchone()
    return {"versions kept": kept, "of one tool": most}


def rows(
    sizes: Sequence[int], tools: int = 25, seconds: float = 30.0, trust: str = "auto"
) -> Iterator[tuple[int, Json]]:
    """Yield the row of each number of servers."""
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="bench-changing-") as place:
            made = {f"s{at}": ["--count", str(tools), "--change-s", str(CHANGE_S)] for at in range(size)}
            entries = {name: {**processes.upstream(name, *words), "trust": trust} for name, words in made.items()}
            config = processes.write_config(Path(place), entries, policy="frozen", encoder="none")
            yield size, asyncio.run(measure(config, size, tools, seconds))


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.growth.changing", __doc__)
    parser.add_argument("--servers", default="10,50,200", help="numbers of servers; default %(default)s")
    parser.add_argument("--tools", type=int, default=25, help="tools of each; default %(default)s")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long pings are sent; default %(default)s")
    parser.add_argument("--trust", default="pin,auto", help="values of `trust`; default %(default)s")
    arguments = parser.parse_args(argv)
    sizes = [int(each) for each in arguments.servers.split(",")]
    for trust in arguments.trust.split(","):
        found = list(rows(sizes, arguments.tools, arguments.seconds, trust))
        print(tables.table(f"servers ({trust})", found), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
