"""Measures what more and more windows of one user cost: processes, memory, wake-ups, and how soon each has its list.

    python -m bench.growth.windows [--windows 1,3,10] [--servers 30]

The windows share one proxy over echo servers (`bench.proxy.windows`), which all run: the first window calls each.
`left` counts the servers that still run once every window has gone and the proxy has ended.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench import processes
from bench.datasets import Json
from bench.growth import tables
from bench.options import make_parser
from bench.proxy.windows import SETTLE_S, open_windows, rss, wake_ups

SERVERS: Final = 30
IDLE_S: Final = 20.0
END_S: Final = 30.0


def measure(command: Sequence[str], folder: Path, windows: int, servers: int) -> Json:
    """Return the figures of so many windows."""
    _, _, _, opened, proxies, children = open_windows(folder, command, windows, servers)
    time.sleep(SETTLE_S)
    ours = [*(each.process.pid for each in opened), *proxies]
    woken, cpu = sum(map(wake_ups, ours)), sum(map(processes.cpu_s, ours))
    time.sleep(IDLE_S)
    row = {
        "proxies": len(proxies),
        "server processes": len(children),
        "RSS MiB": sum(map(rss, ours)),
        "slowest list s": max(each.listed_s for each in opened),
        "wake-ups a second": (sum(map(wake_ups, ours)) - woken) / IDLE_S,
        "idle cpu ms a second": 1e3 * (sum(map(processes.cpu_s, ours)) - cpu) / IDLE_S,
    }
    for each in opened:
        each.leave()
    until = time.monotonic() + END_S
    while (left := [pid for pid in children if Path(f"/proc/{pid}").exists()]) and time.monotonic() < until:
        time.sleep(0.1)
    return {**row, "left": len(left)}


def rows(sizes: Sequence[int], servers: int = SERVERS) -> Iterator[tuple[int, Json]]:
    """Yield the row of each number of windows."""
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="bench-windows-") as place:
            yield size, measure(processes.installed(None), Path(place), size, servers)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.growth.windows", __doc__)
    parser.add_argument("--windows", default="1,3,10", help="numbers of windows; default %(default)s")
    parser.add_argument("--servers", type=int, default=SERVERS)
    arguments = parser.parse_args(argv)
    sizes = [int(each) for each in arguments.windows.split(",")]
    print(tables.table("windows", list(rows(sizes, arguments.servers))))


if __name__ == "__main__":
    main()
