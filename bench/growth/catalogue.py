"""Measures a proxy over more and more tools: the first lists, a search, and the longest step of the loop.

    python -m bench.growth.catalogue CATALOGS [--tools 500,5000,20000,44000] [--per-server 250]

CATALOGS holds the `tools/list` of real servers, one file each; what goes beyond them are the same tools in other words
(`bench.proxy.many_tools`). `cold` is a proxy that knows no tool yet, until it knows them all and has made a list;
`warm` is the next one, which lists and searches until no tool is missing. `step` is the longest step of the event loop
in processor time of its own thread (`bench/servers/watched.py`), which a busy machine does not change, from the answer
to `initialize` on. The start before it is one step more: the first one of all makes the database.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from bench import processes
from bench.clients.stdio import StdioClient
from bench.datasets import Json, read_catalogs
from bench.growth import tables
from bench.growth.ledger import WATCHED
from bench.options import make_parser
from bench.proxy.discovery import discover
from bench.proxy.many_tools import is_servable, until_known, upstreams, varied

TASK: Final = "create a page with a table of last month's sales"
SETTLE_S: Final = 5.0
SUMMED: Final = """
    SELECT 1 FROM catalog_summaries JOIN counters ON counters.value = catalog_summaries.changes
    WHERE counters.name = 'catalog' AND inputs NOT LIKE 'words%'
"""
SUMMED_S: Final = 20.0
MOST_TOOLS: Final = 100_000
MOST_MIB: Final = 1_000.0


async def measure(config: Path, size: int) -> Json:
    """Return the figures of one size."""
    cold, warm = (config.with_name(f"{name}.jsonl") for name in ("cold", "warm"))
    client = await start(cold, config)
    try:
        await client.initialize()
        greeted = [time.time()]
        await until_known(client, config.with_name("foretool.sqlite3"), size)
        known_s = client.age_s
        await client.tools()  # the list that the next proxy finds in the store
        await asyncio.sleep(SETTLE_S)
        await until_summed(config.with_name("foretool.sqlite3"))
    finally:
        await client.stop(60.0)
    client = await start(warm, config)
    try:
        await client.initialize()
        greeted.append(time.time())
        await client.tools()
        list_s = client.age_s
        list_cpu_s = processes.cpu_s(client.pid)
        started = time.perf_counter()
        while "not searched yet" in (await discover(client, TASK))["structuredContent"]["advice"]:
            await asyncio.sleep(0.1)
        searched_s = time.perf_counter() - started
        await asyncio.sleep(SETTLE_S)
        rss, _ = processes.memory_mib(client.pid)
    finally:
        await client.stop(60.0)
    cold_step, warm_step = (
        max(tables.read_steps(path, since), default=(0.0, ""))
        for path, since in zip((cold, warm), greeted, strict=True)
    )
    starts = (max(tables.read_steps(path), default=(0.0, ""))[0] for path in (cold, warm))
    return {
        "all known s": known_s,
        "warm list s": list_s,
        "warm list cpu s": list_cpu_s,
        "all searched s": searched_s,
        "cold step ms": cold_step[0],
        "in (cold)": cold_step[1],
        "warm step ms": warm_step[0],
        "in (warm)": warm_step[1],
        "with the start, cold and warm": " and ".join(f"{step:.3g}" for step in starts),
        "RSS MiB": rss,
    }


async def until_summed(path: Path) -> None:
    """Wait until the store has a summary of the catalog as it is, which a busy machine saves late; not for long, as
    small catalogs have none."""
    until = time.monotonic() + SUMMED_S
    while time.monotonic() < until:
        with closing(sqlite3.connect(path)) as store:
            if store.execute(SUMMED).fetchone():
                return
        await asyncio.sleep(0.5)


async def start(steps: Path, config: Path) -> StdioClient:
    """Start a proxy that notes its long steps in a file."""
    return await StdioClient.start([sys.executable, "-P", str(WATCHED), str(steps), "serve", "--config", str(config)])


def rows(catalogs: Path, sizes: Sequence[int], per_server: int = 250) -> Iterator[tuple[int, Json]]:
    """Yield the row of each size."""
    originals = [(server, tool) for server, tools in read_catalogs(catalogs) for tool in tools if is_servable(tool)]
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="bench-catalogue-") as place:
            folder = Path(place)
            served = upstreams(list(varied(originals, size)), per_server)
            entries = processes.serve_tools(
                folder, {name: [tool for _, tool in theirs] for name, theirs in served.items()}
            )
            limits = {"max_tools": MOST_TOOLS, "max_tools_mib": MOST_MIB}
            config = processes.write_config(folder, entries, policy="frozen", encoder="none", **limits)
            yield size, asyncio.run(measure(config, size))


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.growth.catalogue", __doc__)
    parser.add_argument("catalogs", type=Path, help="catalogues, one file a server")
    parser.add_argument("--tools", default="500,5000,20000,44000", help="sizes; default %(default)s")
    parser.add_argument("--per-server", type=int, default=250, help="tools an upstream; default %(default)s")
    arguments = parser.parse_args(argv)
    sizes = [int(each) for each in arguments.tools.split(",")]
    print(tables.table("tools", list(rows(arguments.catalogs, sizes, arguments.per_server))))


if __name__ == "__main__":
    main()
