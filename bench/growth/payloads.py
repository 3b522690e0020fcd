"""Measures answers of more and more megabytes: time, memory at the peak, and the longest step of the loop.

    python -m bench.growth.payloads [--mb 1,10,50,100] [--limit 256] [--foretool COMMAND]

An upstream on stdio answers one call with so many megabytes of text; `--limit` is the setting `max_message_mib`, and an
answer over it has to be refused at once. The client reads as fast as it comes and keeps nothing. `peak x` is the
memory at the peak above that of the proxy before, as a multiple of the answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench import processes
from bench.clients.messages import IDENTITY, LEGACY
from bench.datasets import Json
from bench.growth import tables
from bench.options import add_foretool, make_parser

LARGE: Final = str(Path(__file__).parents[1] / "servers" / "large.py")
WATCHED: Final = str(Path(__file__).parents[1] / "servers" / "watched.py")
READ: Final = 1 << 20


class PlainClient:
    """A client on stdio that reads lines of any length and keeps only their size, and their head."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._ident = 0
        self._rest = b""

    async def ask(self, method: str, params: dict[str, object]) -> tuple[int, bytes]:
        """Send a request; the size of the answer, and its first and last bytes."""
        assert self.process.stdin is not None
        self._ident += 1
        self._tell({"jsonrpc": "2.0", "id": self._ident, "method": method, "params": params})
        while True:
            size, head = await self._line()
            if b'"method":"notifications' not in head[:200]:
                return size, head

    def _tell(self, message: dict[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def initialize(self) -> None:
        await self.ask("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": IDENTITY})
        self._tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def _line(self) -> tuple[int, bytes]:
        assert self.process.stdout is not None
        size, head = 0, b""
        while True:
            data = self._rest or await self.process.stdout.read(READ)
            self._rest = b""
            if not data:
                raise EOFError
            line, end, rest = data.partition(b"\n")
            size += len(line)
            head = (head + line[:400])[:400]
            if end:
                self._rest = rest
                return size, head


def peak_mib(pid: int) -> float:
    """The most memory that a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


async def measure(command: Sequence[str], folder: Path, mb: int, limit: float) -> Json:
    """Return the figures of one answer."""
    steps = folder / f"steps-{mb}"
    upstream = {"command": sys.executable, "args": ["-S", "-E", LARGE]}
    config = processes.write_config(folder, {"large": upstream}, max_message_mib=limit, encoder="none")
    words = [*(command or (sys.executable, "-P", WATCHED, str(steps))), "serve", "--config", str(config), "--alone"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, limit=4 * READ
    )
    client = PlainClient(process)
    await client.initialize()
    await client.ask("tools/list", {})
    await client.ask("tools/call", {"name": "large__answer", "arguments": {"mb": 0}})
    before, started = peak_mib(process.pid), time.perf_counter()
    cpu, since = processes.cpu_s(process.pid), time.time()
    size, head = await client.ask("tools/call", {"name": "large__answer", "arguments": {"mb": mb}})
    took = time.perf_counter() - started
    cpu = processes.cpu_s(process.pid) - cpu
    peak = peak_mib(process.pid)
    assert process.stdin is not None
    process.stdin.close()
    await process.wait()
    return {
        "s": took,
        "cpu s": cpu,
        "answered": "whole" if size > mb * 1_000_000 else "refused" if b"max_message_mib" in head else "?",
        "peak x": (peak - before) / (mb * 1e6 / 2**20),
        "step ms": max(tables.read_steps(steps, since), default=(0.0, ""))[0],
    }


def rows(sizes: Sequence[int], limit: float, command: Sequence[str]) -> Iterator[tuple[int, Json]]:
    """Yield the row of each size."""
    for mb in sizes:
        with tempfile.TemporaryDirectory(prefix="bench-payloads-") as place:
            yield mb, asyncio.run(measure(command, Path(place), mb, limit))


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.growth.payloads", __doc__)
    parser.add_argument("--mb", default="1,10,50,100", help="megabytes; default %(default)s")
    parser.add_argument("--limit", type=float, default=256.0, help="the setting max_message_mib; default %(default)s")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    sizes = [int(each) for each in arguments.mb.split(",")]
    print(tables.table("MB", list(rows(sizes, arguments.limit, (arguments.foretool or "").split()))))


if __name__ == "__main__":
    main()
