"""Times the listings of the ledger on a large store, such as `bench.storage.ledger` writes.

    python -m bench.storage.at_size CONFIG [--repeat 20] [--json]

Each command runs `--repeat` times in one process that has imported everything before, so `p50_s` and `p95_s` are what
the command takes beyond the start of Python, and `p95_cpu_s` is the processor time, which other work on the machine
changes less; each run opens the file again. With `--processes`, `process_s` is the median of
three whole processes, with the start of Python and all imports. The last rows are what the page reads for one view.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from bench.metrics import quantile
from bench.options import add_json, make_parser
from bench.processes import installed, load_average
from bench.reports import Row, print_row
from foretool.server.commands import group
from foretool.server.config.loader import Config, load
from foretool.server.page.misses import read_misses
from foretool.server.page.overview import read_overview
from foretool.server.page.tools import read_tools
from foretool.server.page.viewer import Viewer
from foretool.storage.opening import open_existing_store
from foretool.storage.records import MissFilter

COMMANDS: Final = (
    (),
    ("misses",),
    ("misses", "--by", "cause"),
    ("misses", "--all"),
    ("misses", "--since", "7d", "--server", "server01"),
    ("misses", "--client", "cursor", "--profile", "work", "--recovered", "no"),
    ("misses", "show", "1000"),
    ("stats",),
    ("stats", "--since", "90d"),
    ("status",),
    ("tools",),
    ("tools", "--sort", "calls"),
    ("clients",),
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


def views(config: Config) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what the page reads, by the view that shows it."""
    yield "page: overview", lambda: read_overview(config, Viewer(""))
    yield "page: misses", lambda: read_misses(config, MissFilter())
    yield "page: tools", lambda: read_tools(config, Viewer(""), "", "", "")


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


def whole_process(words: Sequence[str]) -> float:
    """Return the median seconds of three processes."""
    found = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run([*installed(None), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        found.append(time.perf_counter() - started)
    return median(found)


def rows(config: Config, repeat: int, processes: bool) -> Iterator[Row]:
    """Yield one row for each command and each view of the page."""
    with open_existing_store(config.storage) as store:
        held = store.statistics()
    size = round(held.file_bytes / 2**20)
    yield {"calls": held.calls, "misses": held.misses, "sessions": held.sessions, "mib": size, "load": load_average()}
    for words in COMMANDS:
        row = time_runs(" ".join(("foretool", *words)), partial(run_inside, words), repeat)
        yield {**row, "process_s": round(whole_process(words), 2)} if processes else row
    for name, work in views(config):
        yield time_runs(name, work, repeat)


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
