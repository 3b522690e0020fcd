"""Times the listings of the ledger on a large store, such as `bench.storage.ledger` writes.

    python -m bench.storage.at_size CONFIG [--repeat 20] [--json]

Each command runs `--repeat` times in one process that has imported everything before, so `p50_s` and `p95_s` are what
the command takes beyond the start of Python, and `p95_cpu_s` is the processor time, which other work on the machine
changes less; each run opens the file again. With `--processes`, `process_s` is the median of
three whole processes, with the start of Python and all imports, and `process_cpu_s` its processor time. The last rows
are the views of the page as a browser gets them, with their HTML; `first_cpu_s` is the first one after the start of the
page.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import httpx2
import msgspec

from bench.metrics import quantile
from bench.options import add_json, make_parser
from bench.processes import installed, load_average
from bench.reports import Row, print_row
from foretool.desk.commands.replay import VERDICTS
from foretool.desk.page.process import VIEWER
from foretool.desk.page.rendering import Words
from foretool.desk.page.serving import Behind
from foretool.desk.page.site import Site
from foretool.desk.page.viewers import Viewer
from foretool.server.commands import group
from foretool.server.config.loader import Config, load
from foretool.server.ledger.conditions import CONDITIONS
from foretool.server.ledger.story import CAUSES, NOTICED
from foretool.storage.opening import open_existing_store
from foretool.storage.records import MissFilter

COMMANDS: Final = (
    (),
    ("misses",),
    ("misses", "--by", "cause"),
    ("misses", "--all"),
    ("misses", "--since", "7d", "--server", "server01"),
    ("misses", "--client", "cursor", "--profile", "work", "--recovered", "no"),
    ("misses", "1000"),
    ("status", "--stats"),
    ("status", "--stats", "--since", "90d"),
    ("status",),
    ("tools",),
    ("tools", "--sort", "calls"),
    ("status", "--clients"),
    ("search", "read the file", "--tool", "server01__read_file_0"),
    ("misses", "--confused", "--no-replay"),
)
"""The words after `foretool`."""


def run_inside(words: Sequence[str]) -> None:
    """Run a command in this process, and drop what it prints."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            status = group.run(list(words))
        except SystemExit as ended:
            status = int(ended.code or 0)
    if status not in (0, 1):
        raise SystemExit(f"foretool {' '.join(words)} ended with {status}")


def addresses(config: Config) -> Iterator[str]:
    """Yield the address of each page, and of one miss, one tool and one session in the middle of the log."""
    with open_existing_store(config.storage) as store:
        misses = store.calls.find_misses(MissFilter(), 1000)
        session = store.sessions.recent(1000)[-1].key
        tool = store.calls.usage()[0].tool
    yield from ("", "misses", "misses?cause=stale&recovered=no", f"misses/{misses[-1].id}", "tools", f"tools/{tool}")
    yield from ("sessions", f"sessions/{session}", "settings")


def open_site(config: Config) -> Site:
    """Return the page as `foretool page` makes it."""
    return Site(config, Words(CAUSES, NOTICED, CONDITIONS, VERDICTS))


def show_page(site: Site, address: str) -> None:
    """Get one page, with everything that its HTML takes."""

    async def get() -> int:
        app = Behind(site.app)
        said = {VIEWER: base64.b64encode(msgspec.json.encode(Viewer(""))).decode()}
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
            return (await client.get(f"/{address}", headers=said)).status_code

    if (status := asyncio.run(get())) != 200:
        raise SystemExit(f"/{address} answered {status}")


def page_rows(config: Config, repeat: int) -> Iterator[Row]:
    """Yield one row for each page."""
    site = open_site(config)
    for address in addresses(config):
        used = time.process_time()
        show_page(open_site(config), address)
        first = time.process_time() - used
        name = f"page: /{address}"
        yield {**time_runs(name, partial(show_page, site, address), repeat), "first_cpu_s": round(first, 3)}


def time_runs(name: str, work: Callable[[], object], repeat: int) -> Row:
    """Return the seconds of several runs; one before them is not counted."""
    work()
    walls, processor = [], []
    for _ in range(repeat):
        started, used = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - started)
        processor.append(time.process_time() - used)
    return {
        "command": name,
        "p50_s": round(median(walls), 3),
        "p95_s": round(quantile(walls, 0.95), 3),
        "p95_cpu_s": round(quantile(processor, 0.95), 3),
    }


def whole_process(words: Sequence[str]) -> Row:
    """Return the median seconds of three processes, on the clock and of the processors."""
    walls, processor = [], []
    for _ in range(3):
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*installed(None), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        walls.append(time.perf_counter() - started)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"process_s": round(median(walls), 2), "process_cpu_s": round(median(processor), 2)}


def rows(config: Config, repeat: int, processes: bool) -> Iterator[Row]:
    """Yield one row for each command and each view of the page."""
    with open_existing_store(config.storage) as store:
        held = store.statistics()
    size = round(held.file_bytes / 2**20)
    yield {"calls": held.calls, "misses": held.misses, "sessions": held.sessions, "mib": size, "load": load_average()}
    for words in COMMANDS:
        row = time_runs(" ".join(("foretool", *words)), partial(run_inside, words), repeat)
        yield {**row, **whole_process(words)} if processes else row
    yield from page_rows(config, repeat)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the rows."""
    parser = make_parser("bench.storage.at_size", __doc__)
    parser.add_argument("config", type=Path, metavar="CONFIG")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--processes", action="store_true", help="time whole processes too")
    add_json(parser)
    arguments = parser.parse_args(argv)
    os.environ["FORETOOL_CONFIG"] = str(arguments.config.resolve())
    for row in rows(load(arguments.config), arguments.repeat, arguments.processes):
        print_row(row, arguments.json)


if __name__ == "__main__":
    main()
