"""Times first lists and calls while the page is open in a browser, beside the same without it.

    python -m bench.proxy.beside_page [--pairs 8] [--phase-s 12] [--records 100000] [--misses 5000]
                                      [--client auto] [--foretool COMMAND]

The store has `--records` calls and `--misses` misses of months of use (`bench.storage.ledger`). One proxy serves an
echo server and is called all the time; between calls new windows are started until they have their first list, each
with a proxy of its own. Every pair has two phases of `--phase-s` seconds: the overview of `foretool page` is open and
follows what happens by server-sent events, and it is not. Which comes first changes from pair to pair. `--client
chromium` opens it in headless Chromium, `http` with a client that reads the stream of events and gets the overview
again at each, as the page's script does; `auto` takes Chromium where it is. Each call is recorded, so the page has
something to tell: `told` says how often it was read again in a phase, in the mean.

The output is one JSON object for each figure: medians of the phases without and with the page, and their difference in
pairs with its 95 % interval. `cpu` figures are processor time of the proxy alone, which other work on the machine
changes less.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Final

import httpx2

from bench.clients.stdio import StdioClient
from bench.metrics import quantile
from bench.options import add_foretool, make_parser
from bench.processes import compiled_environment, cpu_s, installed, load_average, upstream
from bench.storage.ledger import write_ledger
from foretool.retrieval.evaluation import paired_difference

CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome")
TOOL: Final = "up__up_echo"
CALLS: Final = 100
"""Calls between two first lists."""
PAUSE_S: Final = 0.002
"""After each call, so that the machine is not full of calls alone."""
SETTLE_S: Final = 2.0
"""After the page was opened, or closed."""
FIGURES: Final = {
    "first_list_ms": 1, "first_list_cpu_ms": 1, "call_p50_ms": 3, "call_p95_ms": 3, "call_cpu_us": 1,
}  # fmt: skip
"""What is measured in a phase, and its digits."""

Phase = dict[str, float]


class Reads:
    """Counts how often an open page was read again."""

    count = 0


def add_server(config: Path) -> None:
    """Have the config serve the echo server alone; what the store knows of others stays on record."""
    text = json.loads(config.read_text("utf-8"))
    text["mcpServers"] = {"up": upstream("up")}
    text["foretool"].pop("profiles", None)
    config.write_text(json.dumps(text), "utf-8")


@asynccontextmanager
async def serve_page(command: Sequence[str], config: Path) -> AsyncIterator[str]:
    """Run `foretool page` as long as the block; yields its one-time link."""
    process = await asyncio.create_subprocess_exec(
        *command, "page", "--config", str(config), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def browse(link: str, program: str) -> AsyncIterator[Reads]:
    """Keep the overview open in headless Chromium."""
    from playwright.async_api import Request, async_playwright

    reads = Reads()
    home = link.rpartition("/open?")[0]

    def count(request: Request) -> None:
        reads.count += request.url == f"{home}/"

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = await browser.new_page()
        await page.goto(link)
        await page.wait_for_url(f"{home}/")
        await page.wait_for_selector("#live")
        page.on("request", count)
        try:
            yield reads
        finally:
            await browser.close()


@asynccontextmanager
async def follow(link: str) -> AsyncIterator[Reads]:
    """Follow the overview's events, and read it again at each, as the script of the page does."""
    reads = Reads()
    home = link.rpartition("/open?")[0]
    async with httpx2.AsyncClient(timeout=None) as client:
        opened = await client.get(link)
        opened.raise_for_status()
        cookie = opened.headers["set-cookie"].partition(";")[0]
        client.cookies.clear()
        client.headers["cookie"] = cookie
        (await client.get(f"{home}/")).raise_for_status()

        async def listen() -> None:
            async with client.stream("GET", f"{home}/events") as events:
                events.raise_for_status()
                async for line in events.aiter_lines():
                    if line == "event: changed":
                        (await client.get(f"{home}/")).raise_for_status()
                        reads.count += 1

        listening = asyncio.create_task(listen())
        try:
            yield reads
        finally:
            failed = listening.done() and not listening.cancelled() and listening.exception()
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError, httpx2.HTTPError):
                await listening
            if failed:
                raise SystemExit(f"the page could not be followed: {failed!r}")


async def measure_phase(client: StdioClient, command: Sequence[str], config: Path, phase_s: float) -> Phase:
    """Call and start windows in turns for some seconds."""
    calls: list[float] = []
    lists: list[float] = []
    used: list[float] = []
    cpu_before = cpu_s(client.pid)
    until = time.monotonic() + phase_s
    while time.monotonic() < until or not lists:
        for _ in range(CALLS):
            started = time.perf_counter()
            await client.call(TOOL, {"text": "x"})
            calls.append(time.perf_counter() - started)
            await asyncio.sleep(PAUSE_S)
        async with StdioClient.serve(command, config) as window:
            took, listed = await window.first_list()
            if not listed:
                raise SystemExit("the first list is empty")
            lists.append(took)
            used.append(cpu_s(window.pid))
    return {
        "first_list_ms": median(lists) * 1e3,
        "first_list_cpu_ms": median(used) * 1e3,
        "call_p50_ms": median(calls) * 1e3,
        "call_p95_ms": quantile(calls, 0.95) * 1e3,
        "call_cpu_us": (cpu_s(client.pid) - cpu_before) / len(calls) * 1e6,
    }


async def measure(
    command: Sequence[str], config: Path, pairs: int, phase_s: float, program: str | None
) -> tuple[list[Phase], list[Phase], list[int]]:
    """Return the phases without and with an open page, pair by pair, and how often it was read again in each."""
    without: list[Phase] = []
    beside: list[Phase] = []
    told: list[int] = []

    async def alone() -> None:
        await asyncio.sleep(SETTLE_S)
        without.append(await measure_phase(client, command, config, phase_s))

    async def opened() -> None:
        async with serve_page(command, config) as link, browse(link, program) if program else follow(link) as reads:
            await asyncio.sleep(SETTLE_S)
            before = reads.count
            beside.append(await measure_phase(client, command, config, phase_s))
            told.append(reads.count - before)

    async with StdioClient.serve(command, config) as client:
        await client.first_list()
        for _ in range(CALLS):
            await client.call(TOOL, {"text": "x"})
        for number in range(pairs):
            for phase in (alone, opened) if number % 2 else (opened, alone):
                await phase()
    return without, beside, told


def report(without: Sequence[Phase], beside: Sequence[Phase], told: Sequence[int], client: str) -> None:
    """Print one line for each figure."""
    for name, digits in FIGURES.items():
        theirs, ours = ([each[name] for each in phases] for phases in (without, beside))
        low, mean, high = paired_difference(ours, theirs, digits)
        row = {
            "test": "beside_page", "figure": name, "client": client, "pairs": len(ours),
            "without": round(median(theirs), digits), "with": round(median(ours), digits),
            "difference": mean, "interval": [low, high],
            "told": round(sum(told) / len(told), 1), "load": load_average(),
        }  # fmt: skip
        print(json.dumps(row), flush=True)


def find_browser() -> str | None:
    """Return the path of Chromium, if it and Playwright are installed."""
    there = find_spec("playwright") is not None
    return next(filter(None, map(shutil.which, CHROMIUM)), None) if there else None


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.proxy.beside_page", __doc__)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--phase-s", type=float, default=12.0, help="seconds of each phase; default %(default)s")
    parser.add_argument("--records", type=int, default=100_000, help="calls on record; default %(default)s")
    parser.add_argument("--misses", type=int, default=5_000, help="misses on record; default %(default)s")
    parser.add_argument("--client", choices=("auto", "chromium", "http"), default="auto")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    program = find_browser() if arguments.client != "http" else None
    if arguments.client == "chromium" and program is None:
        raise SystemExit(f"--client chromium: none of {', '.join(CHROMIUM)} is on PATH, or Playwright is not installed")
    with tempfile.TemporaryDirectory(prefix="bench-beside-page-") as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ |= compiled_environment(Path(folder) / "bytecode")
        command = installed(arguments.foretool)
        config = write_ledger(Path(folder) / "store", arguments.records, arguments.misses, 88.0, time.time())
        add_server(config)
        found = asyncio.run(measure(command, config, arguments.pairs, arguments.phase_s, program))
    report(*found, "chromium" if program else "http")


if __name__ == "__main__":
    main()
