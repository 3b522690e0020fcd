"""Calls through three replicas over one PostgreSQL while replicas are killed and the database is restarted.

    python -m bench.fleet.replicas [--clients 50] [--calls 100000] [--kill-s 20] [--restarts 2] [--json]

Half of the clients speak the legacy era, half 2026-07-28; all go through a balancer that sends each connection to the
next replica, and change connections every `--hop` requests. A replica is ended with SIGKILL every `--kill-s` seconds
and started again. The figures: calls that were never answered (`lost`), answered twice (`doubled`), or with the
answer of another call (`wrong`); answered attempts that are not on record (`unrecorded`), and attempts that are on
record more than once (`recorded_twice`); sessions that no replica knew any more; how long clients took from a broken
connection to the next response. `interrupted` are attempts whose replica died before the answer left it: a client
learns that, and calls again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from bench.fleet.balancer import Balancer, is_ready
from bench.fleet.callers import Caller, LegacyCaller, ModernCaller, Seen
from bench.fleet.database import DatabaseServer
from bench.metrics import quantile
from bench.options import add_foretool, add_json, make_parser
from bench.processes import cpu_s, free_port, installed, load_average, upstream, write_config
from bench.reports import Row, print_row
from foretool.storage.opening import open_store

TOOL = "e__e_echo"
START_S = 60.0
SETTLE_S = 20.0


class Replica:
    """One `foretool serve --http`, on the same port each time it is started."""

    def __init__(self, folder: Path, command: Sequence[str], address: str, call_ms: float, **settings: Any) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.port = free_port()
        self.process: asyncio.subprocess.Process | None = None
        self.cpu_s = 0.0
        """Processor time of the processes that have ended."""
        servers = {"e": upstream("e", "--count", "3", "--call-ms", str(call_ms))}
        given = {"storage": address, "record": "full", "encoder": "none", "learn_s": 0, **settings}
        self._config = write_config(folder, servers, **given)
        self._command = command

    async def start(self) -> None:
        environ = {**os.environ, "HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder / "state")}
        words = [*self._command, "serve", "--http", f"127.0.0.1:{self.port}", "--config", str(self._config)]
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *words, env=environ, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    async def wait_ready(self) -> None:
        async with asyncio.timeout(START_S):
            while not await is_ready(self.port):
                await asyncio.sleep(0.05)

    async def end(self, how: signal.Signals = signal.SIGKILL) -> int:
        """End the process; return its exit status."""
        assert self.process is not None
        self.cpu_s += cpu_s(self.process.pid)
        self.process.send_signal(how)
        return await self.process.wait()

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")


class Fleet:
    """Replicas over one database, behind one balancer."""

    def __init__(
        self, folder: Path, command: Sequence[str], count: int = 3, call_ms: float = 2.0, **settings: Any
    ) -> None:
        self.database = DatabaseServer(folder / "database")
        self.address = self.database.address
        self.replicas = [
            Replica(folder / f"replica-{place}", command, self.address, call_ms, **settings) for place in range(count)
        ]
        self.balancer = Balancer([replica.port for replica in self.replicas])

    async def __aenter__(self) -> Fleet:
        try:
            for replica in self.replicas:
                await replica.start()
            await self.balancer.start()
            await self.balancer.wait_for(len(self.replicas), START_S)
        except BaseException:
            print(*(replica.log for replica in self.replicas), sep="\n", file=sys.stderr)
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for replica in self.replicas:
            if replica.process is not None and replica.process.returncode is None:
                await replica.end(signal.SIGTERM)
        await self.balancer.close()
        self.database.close()

    async def kill_in_turn(self, every_s: float) -> None:
        """Kill one replica after the other, and start each again, until cancelled."""
        place = 0
        while True:
            await asyncio.sleep(every_s)
            replica = self.replicas[place % len(self.replicas)]
            await replica.end()
            await replica.start()
            place += 1

    async def restart_database(self, away_s: float = 1.0) -> None:
        await asyncio.to_thread(self.database.stop)
        await asyncio.sleep(away_s)
        await asyncio.to_thread(self.database.start)

    async def recorded(self, texts: Collection[str]) -> Counter[str]:
        """Return how often each text is on record, once every replica has written what it kept: of these texts each,
        or after `SETTLE_S`."""
        deadline = time.monotonic() + SETTLE_S
        while not set(texts) <= set(self._read()) and time.monotonic() < deadline:
            await asyncio.sleep(1)
        for replica in self.replicas:
            await replica.end(signal.SIGTERM)
        return self._read()

    def _read(self) -> Counter[str]:
        with open_store(self.address) as store:
            return Counter(json.loads(call.arguments)["text"] for call in store.calls.recent(-1))


def make_callers(fleet: Fleet, clients: int, hop: int, seen: Seen) -> list[Caller]:
    kinds: tuple[type[Caller], ...] = (LegacyCaller, ModernCaller)
    return [kinds[place % 2](f"c{place}", fleet.balancer.port, TOOL, seen, hop) for place in range(clients)]


def judge(seen: Seen, records: Counter[str]) -> Row:
    """The figures of one run."""
    reconnects = sorted(seen.reconnects)
    return {
        "answered": len(seen.answered), "lost": seen.lost, "doubled": seen.doubled, "wrong": seen.wrong,
        "unrecorded": sum(not records[text] for text in seen.answered),
        "recorded_twice": sum(count > 1 for count in records.values()),
        "sessions_lost": seen.sessions_lost, "interrupted": seen.interrupted, "resumed": seen.resumed,
        "reconnects": len(reconnects),
        "reconnect_p50_s": round(quantile(reconnects, 0.5), 3) if reconnects else 0.0,
        "reconnect_most_s": round(max(reconnects, default=0.0), 3),
    }  # fmt: skip


async def run(
    folder: Path, command: Sequence[str], clients: int, calls: int, hop: int, kill_s: float, restarts: int
) -> Row:
    """Run the whole trial in a folder."""
    seen = Seen()
    async with Fleet(folder, command) as fleet:
        callers = make_callers(fleet, clients, hop, seen)
        begun = time.monotonic()
        work = asyncio.gather(*(caller.run(calls // clients) for caller in callers))
        killer = asyncio.create_task(fleet.kill_in_turn(kill_s))
        for share in range(restarts):
            due = calls * (share + 1) // (restarts + 1)
            while len(seen.answered) < due and not work.done():
                await asyncio.sleep(0.1)
            await fleet.restart_database()
        await work
        took = time.monotonic() - begun
        killer.cancel()
        for caller in callers:
            await caller.close()
        for replica in fleet.replicas:
            await replica.wait_ready()
        records = await fleet.recorded(seen.answered)
        spent = sum(replica.cpu_s for replica in fleet.replicas)
        row = judge(seen, records)
    row |= {
        "took_s": round(took, 1), "calls_per_s": round(len(seen.answered) / took, 1),
        "replica_cpu_ms": round(spent * 1000 / max(len(seen.answered), 1), 3), "load": load_average(),
    }  # fmt: skip
    for error, count in (*seen.errors.items(), *seen.refused.items()):
        print(f"{count} x {error}", file=sys.stderr)
    return row


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and run the trial."""
    parser = make_parser("bench.fleet.replicas", __doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--hop", type=int, default=10, help="requests of one connection; default %(default)s")
    parser.add_argument("--kill-s", type=float, default=20.0, help="seconds between two kills; default %(default)s")
    parser.add_argument("--restarts", type=int, default=2, help="restarts of the database; default %(default)s")
    add_foretool(parser)
    add_json(parser)
    arguments = parser.parse_args(argv)
    command = installed(arguments.foretool)
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        row = asyncio.run(
            run(
                Path(folder),
                command,
                arguments.clients,
                arguments.calls,
                arguments.hop,
                arguments.kill_s,
                arguments.restarts,
            )
        )
    print_row(row, arguments.json)


if __name__ == "__main__":
    main()
