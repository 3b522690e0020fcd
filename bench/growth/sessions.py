"""Measures what a proxy keeps of answers that legacy HTTP sessions have read: memory with more and more open sessions.

    python -m bench.growth.sessions [--sessions 10,30,100] [--mb 10]

Each session of the legacy era opens, calls one tool that answers with so many megabytes, reads the answer, and stays
open. An answer waits for a client that comes back with `Last-Event-ID`, so a proxy could keep all of them. `more MiB`
is the resident memory afterwards above that before the first session, once the proxy has given back what it needs no
more; `peak MiB` is the most that it had meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench import processes
from bench.clients.http import HttpClient
from bench.clients.messages import LEGACY, said
from bench.datasets import Json
from bench.growth import tables
from bench.growth.payloads import LARGE, peak_mib
from bench.options import make_parser

MB: Final = 10
SETTLE_S: Final = 12.0
"""Longer than the pause between two returns of memory to the system."""
START_S: Final = 60.0


async def measure(command: Sequence[str], folder: Path, sessions: int, mb: int) -> Json:
    """Return the figures of so many sessions."""
    port = processes.free_port()
    config = processes.write_config(
        folder, {"large": {"command": sys.executable, "args": ["-S", "-E", LARGE]}}, max_message_mib=4 * mb,
        encoder="none",
    )  # fmt: skip
    words = [*command, "serve", "--config", str(config), "--http", f"127.0.0.1:{port}"]
    nothing = asyncio.subprocess.DEVNULL
    proxy = await asyncio.create_subprocess_exec(*words, stdin=nothing, stdout=nothing, stderr=nothing)
    opened: list[HttpClient] = []
    try:
        first = await connect(port)
        opened.append(first)
        await first.call("large__answer", {"mb": 0})
        await asyncio.sleep(SETTLE_S)
        before, cpu = processes.memory_mib(proxy.pid)[0], processes.cpu_s(proxy.pid)
        for _ in range(sessions):
            client = await connect(port)
            opened.append(client)
            answer = await client.call("large__answer", {"mb": mb})
            if len(said(answer)) != mb * 1_000_000:
                raise SystemExit("an answer is not whole")
        cpu = processes.cpu_s(proxy.pid) - cpu
        await asyncio.sleep(SETTLE_S)
        return {
            "more MiB": processes.memory_mib(proxy.pid)[0] - before,
            "peak MiB": peak_mib(proxy.pid) - before,
            "cpu s a session": cpu / sessions,
        }
    finally:
        for client in opened:
            await client.close()
        proxy.terminate()
        await proxy.wait()


async def connect(port: int) -> HttpClient:
    """Open a session, as soon as the proxy listens."""
    until = time.monotonic() + START_S
    while True:
        client = HttpClient(port, LEGACY)
        try:
            await client.connect()
        except OSError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.1)
        else:
            await client.initialize()
            return client


def rows(sizes: Sequence[int], mb: int = MB) -> Iterator[tuple[int, Json]]:
    """Yield the row of each number of sessions."""
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="bench-sessions-") as place:
            yield size, asyncio.run(measure(processes.installed(None), Path(place), size, mb))


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.growth.sessions", __doc__)
    parser.add_argument("--sessions", default="10,30,100", help="numbers of sessions; default %(default)s")
    parser.add_argument("--mb", type=int, default=MB, help="megabytes of each answer; default %(default)s")
    arguments = parser.parse_args(argv)
    sizes = [int(each) for each in arguments.sessions.split(",")]
    print(tables.table("sessions", list(rows(sizes, arguments.mb))))


if __name__ == "__main__":
    main()
