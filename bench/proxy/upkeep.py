"""Measures a proxy while something else works on its large store, in pairs with the same proxy left alone.

    python -m bench.proxy.upkeep CONFIG [--with page,retention] [--pairs 5] [--calls 400] [--json]

CONFIG is one that `bench.storage.ledger` wrote. Its storage file is copied, and a proxy with one small server serves
over the copy: first list, then calls of a hidden tool, one after the other.

`page`: `foretool page` runs beside it, a browser has the overview open, and loads it again at each event, as the page's
script does. `retention`: the proxy itself deletes what is older than 30 of the 88 days, right from its start instead of
after two minutes. Pairs alternate: alone and beside, then beside and alone.

`step` is the longest step of the event loop in processor time of its own thread (`bench/servers/watched.py`), which a
busy machine does not change. `call_cpu_ms` is the processor time of the whole proxy for one call; with retention it has
that of the thread which deletes. `deleted` is how many records went during the calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from statistics import median
from typing import Final, Literal, cast

import httpx2

from bench import processes
from bench.clients.stdio import StdioClient
from bench.growth import tables
from bench.metrics import quantile
from bench.options import add_json, make_parser
from bench.reports import Row, print_row

WATCHED: Final = Path(__file__).parents[1] / "servers" / "watched.py"
TOOLS: Final = [f"t{number}" for number in range(14)]
READS: Final = {"readOnlyHint": True}
PAUSE_S: Final = 0.02
"""Between two calls, so that the calls take as long as the work beside them."""
KEPT_DAYS: Final = 30
CALL_S: Final = 120.0
Work = Literal["alone", "page", "retention"]


async def measure(config: Path, work: Work, calls: int) -> dict[str, float]:
    """Return the figures of one proxy that lists once and answers so many calls."""
    steps = config.with_name("steps.jsonl")
    steps.unlink(missing_ok=True)
    hurry = ["--hurry"] if work == "retention" else []
    command = [sys.executable, "-P", str(WATCHED), str(steps), *hurry, "serve", "--config", str(config), "--alone"]
    before = count_records(config)
    async with contextlib.AsyncExitStack() as running:
        if work == "page":
            await running.enter_async_context(open_page(config))
        client = await StdioClient.start(command)
        try:
            listed_s, _ = await client.first_list()
            await client.call("call_tool", {"name": "small__t3", "arguments": {"text": "a"}}, CALL_S)
            times = []
            cpu, since = processes.cpu_s(client.pid), time.time()
            for number in range(calls):
                started = time.perf_counter()
                given = {"name": f"small__{TOOLS[number % len(TOOLS)]}", "arguments": {"text": "a"}}
                answer = await client.call("call_tool", given, CALL_S)
                times.append(1e3 * (time.perf_counter() - started))
                if answer.get("isError"):
                    raise SystemExit(f"a call failed: {answer}")
                await asyncio.sleep(PAUSE_S)
            cpu = processes.cpu_s(client.pid) - cpu
        finally:
            await client.stop(120.0)
    return {
        "first_list_s": listed_s,
        "call_p50_ms": quantile(times, 0.5),
        "call_p95_ms": quantile(times, 0.95),
        "call_cpu_ms": 1e3 * cpu / calls,
        "step_ms": max((took for took, _ in tables.read_steps(steps, since)), default=0.0),
        "deleted": max(0, before - count_records(config)),
    }


def count_records(config: Path) -> int:
    """Return how many calls the store holds."""
    with closing(sqlite3.connect(config.with_name("foretool.sqlite3"))) as file:
        return int(file.execute("SELECT count(*) FROM calls").fetchone()[0])


@asynccontextmanager
async def open_page(config: Path) -> AsyncIterator[None]:
    """Run `foretool page` with a browser that shows the overview and follows its events."""
    command = [*processes.installed(None), "page", "--config", str(config)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        link = (await process.stdout.readline()).decode().strip()
        async with httpx2.AsyncClient(follow_redirects=True, timeout=60.0) as browser:
            place = str((await browser.get(link)).raise_for_status().url).rpartition("/")[0]
            following = asyncio.create_task(_follow(browser, place))
            try:
                yield
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
    finally:
        process.terminate()
        await process.wait()


async def _follow(browser: httpx2.AsyncClient, place: str) -> None:
    async with browser.stream("GET", f"{place}/events") as events:
        async for line in events.aiter_lines():
            if line.startswith("data"):
                (await browser.get(f"{place}/")).raise_for_status()


def prepare(source: Path, folder: Path, work: Work) -> Path:
    """Copy the store of a config, and write the config of the proxy that serves over the copy."""
    folder.mkdir()
    tools = [
        {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}, "annotations": READS}
        for name in TOOLS
    ]  # fmt: skip
    days = KEPT_DAYS if work == "retention" else 0
    small = processes.serve_tools(folder, {"small": tools})
    config = processes.write_config(folder, small, encoder="none", retention_days=days)
    shutil.copyfile(source.with_name("foretool.sqlite3"), folder / "foretool.sqlite3")
    return config


def rows(source: Path, works: Sequence[Work], pairs: int, calls: int) -> list[Row]:
    """Return a row for each run, and the median difference of the pairs of each kind of work."""
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-upkeep-") as place:
        for work in works:
            each: list[tuple[dict[str, float], dict[str, float]]] = []
            for pair in range(pairs):
                got: dict[Work, dict[str, float]] = {}
                order: tuple[Work, Work] = ("alone", work) if pair % 2 == 0 else (work, "alone")
                for one in order:
                    config = prepare(source, Path(place) / f"{work}-{pair}-{one}", one)
                    got[one] = asyncio.run(measure(config, one, calls))
                    shutil.rmtree(config.parent)
                    found.append(_row(one, pair, got[one]))
                each.append((got["alone"], got[work]))
            found.append(_row(f"{work} - alone, median", pairs, _difference(each)))
    return found


def _difference(pairs: Sequence[tuple[dict[str, float], dict[str, float]]]) -> dict[str, float]:
    return {name: median(beside[name] - alone[name] for alone, beside in pairs) for name in pairs[0][0]}


def _row(work: str, pair: int, figures: dict[str, float]) -> Row:
    rounded = {name: round(value, 3) for name, value in figures.items()}
    return {"work": work, "pair": pair, **rounded, "load": processes.load_average()}


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.proxy.upkeep", __doc__)
    parser.add_argument("config", type=Path, metavar="CONFIG")
    parser.add_argument("--with", dest="works", default="page,retention", help="default %(default)s")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--calls", type=int, default=400)
    add_json(parser)
    arguments = parser.parse_args(argv)
    works = cast(Sequence[Work], arguments.works.split(","))
    for row in rows(arguments.config, works, arguments.pairs, arguments.calls):
        print_row(row, arguments.json)


if __name__ == "__main__":
    main()
