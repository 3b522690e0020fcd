"""Checks that several proxies on one storage file lose no record.

    python -m bench.proxy.shared_storage [--proxies 4] [--calls 2000] [--kill 1]

Each proxy is a `foretool serve` on stdio with its own upstream; all write the same file. A client sends each proxy its
calls with up to `--at-once` in flight, each with its own number. One proxy is ended with SIGKILL in mid-traffic. The
output is one JSON object: calls `answered`, answers that belonged to another call (`wrong`), and for the records how
many answered calls are `missing`, how many are there `twice`, how many belong to no call (`unknown`); and the longest
wait for an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import processes
from bench.clients.messages import Failed, said
from bench.clients.stdio import StdioClient
from bench.metrics import quantile
from bench.options import add_foretool, make_parser


@dataclass
class Worker:
    """A proxy, and the answers that its client got."""

    number: int
    calls: int
    client: StdioClient
    answered: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)

    async def work(self, at_once: int) -> None:
        """Make all calls, `at_once` in flight."""
        numbers = iter(range(self.calls))
        await asyncio.gather(*(self._work(numbers) for _ in range(at_once)))

    async def _work(self, numbers: Any) -> None:
        for number in numbers:
            text = f"{self.number}-{number}"
            self.asked.add(text)
            started = time.perf_counter()
            try:
                got = json.loads(said(await self.client.call("up__up_echo", {"text": text})))["arguments"]["text"]
            except (Failed, BrokenPipeError, ConnectionResetError):
                return  # it was killed
            self.milliseconds.append(1e3 * (time.perf_counter() - started))
            self.answered.add(text)
            if got != text:
                self.wrong.append(f"{text}: {got}")


async def shared(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Start the proxies, let them work, kill some, and read the file."""
    # Without an encoder: the process that prepares one outlives a killed proxy for a while, and writes into the folder.
    settings = {"policy": "full", "record": "full", "encoder": "none"}
    path = processes.write_config(folder, {"up": processes.upstream("up")}, **settings)
    command = [*processes.installed(arguments.foretool), "serve", "--config", str(path)]
    workers = [Worker(at, arguments.calls, await StdioClient.start(command)) for at in range(arguments.proxies)]
    for worker in workers:
        await worker.client.initialize()
        await worker.client.tools()
    started = time.monotonic()
    working = [asyncio.create_task(worker.work(arguments.at_once)) for worker in workers]
    doomed = workers[: arguments.kill]
    while any(len(worker.answered) < arguments.calls / 3 for worker in doomed):
        await asyncio.sleep(0.01)
    for worker in doomed:
        worker.client.process.send_signal(signal.SIGKILL)
    await asyncio.gather(*working)
    took = time.monotonic() - started
    statuses = [await worker.client.stop() for worker in workers]
    return {
        "test": "shared",
        "proxies": len(workers),
        "killed": len(doomed),
        "calls": sum(len(worker.asked) for worker in workers),
        "answered": [len(worker.answered) for worker in workers],
        "wrong": sum(len(worker.wrong) for worker in workers),
        **records(folder / "foretool.sqlite3", workers),
        "most_ms": round(max(ms for worker in workers for ms in worker.milliseconds), 1),
        "p99_ms": round(quantile([ms for worker in workers for ms in worker.milliseconds], 0.99), 1),
        "seconds": round(took, 1),
        "exit_statuses": statuses,
        "load": processes.load_average(),
    }


def records(path: Path, workers: Sequence[Worker]) -> dict[str, Any]:
    """Compare the records in the file with the answers."""
    store = sqlite3.connect(path)
    try:
        kept = Counter(json.loads(written)["text"] for (written,) in store.execute("SELECT arguments FROM calls"))
        sound = store.execute("PRAGMA integrity_check").fetchone()[0]
    finally:
        store.close()
    answered = {text for worker in workers for text in worker.answered}
    asked = {text for worker in workers for text in worker.asked}
    return {
        "kept": sum(kept.values()),
        "missing": len(answered - kept.keys()),
        "twice": sum(count > 1 for count in kept.values()),
        "unknown": len(kept.keys() - asked),
        "file": sound,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and run."""
    parser = make_parser("bench.proxy.shared_storage", __doc__)
    parser.add_argument("--proxies", type=int, default=4, help="default %(default)s")
    parser.add_argument("--calls", type=int, default=2000, help="of each; default %(default)s")
    parser.add_argument("--at-once", type=int, default=8, help="in flight at each; default %(default)s")
    parser.add_argument("--kill", type=int, default=1, help="how many end with SIGKILL; default %(default)s")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="bench-shared-") as place:
        print(json.dumps(asyncio.run(shared(arguments, Path(place)))))


if __name__ == "__main__":
    main()
