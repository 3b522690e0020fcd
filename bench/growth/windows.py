"""Measures what more and more windows of one user cost: processes, memory, wake-ups, and how soon each has its list.

    python -m bench.growth.windows [--windows 1,3,10] [--servers 30]

The windows share one proxy over echo servers (`bench.proxy.windows`), which all run: the first window calls each.
`left` counts the servers that still run once every window has gone and the proxy has ended.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench import processes
from bench.datasets import Json
from bench.growth import tables
from bench.options import make_parser
from bench.proxy.windows import SETTLE_S, Window, children_of, rss, wake_ups
from bench.proxy.windows import processes as processes_with

SERVERS: Final = 30
IDLE_S: Final = 20.0
END_S: Final = 30.0


def measure(command: Sequence[str], folder: Path, windows: int, servers: int) -> Json:
    """Return the figures of so many windows."""
    made = {f"s{at}": processes.upstream(f"s{at}") for at in range(servers)}
    config = processes.write_config(folder, made, linger_s=1, share=True)
    environ = {**os.environ, "FORETOOL_SOCKETS": str(folder / "run")}
    serve = [*command, "serve", "--config", str(config)]
    opened = [Window(serve, environ) for _ in range(windows)]
    proxies = [pid for pid in processes_with(str(config)) if pid not in [each.process.pid for each in opened]]
    for at in range(servers):
        opened[0].ask("tools/call", {"name": f"s{at}__{opened[0].tool(f's{at}')}", "arguments": {}})
    children = [pid for proxy in proxies for pid in children_of(proxy)]
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
