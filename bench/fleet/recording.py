"""Times calls through replicas that differ in where they record, and when: what recording adds to an answer.

    python -m bench.fleet.recording [--calls 200] [--rounds 10] [--delay-ms 1 5] [--foretool COMMAND] [--json]

One replica of `foretool serve --http` for each way to record: a SQLite file, PostgreSQL on this machine, and the same
behind a network with these round trips (a relay on loopback), with `commit: before` and `behind` each. All of them run
all the time, each with an echo server of its own. In each round one client calls each of them so many times, one call
after the other, then 32 connections call at a time. The rows: p5, p50 and p95 of a call in ms, `added_ms` (p50 less
that of SQLite; `added_p5_ms` likewise, which a busy machine disturbs least), calls/s with 32 in flight (median of the
rounds), and the replica's processor time for a call.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.clients.http import HttpClient
from bench.clients.messages import MODERN, said
from bench.fleet.database import DatabaseServer
from bench.fleet.relay import relaying
from bench.fleet.replicas import TOOL, Replica
from bench.metrics import quantile
from bench.options import add_foretool, add_json, make_parser
from bench.processes import cpu_s, installed, load_average
from bench.proxy.http_calls import Target
from bench.reports import Row, print_row, times_row

FIRST = "SQLite"
COMMITS = ("before", "behind")


class Called(Target):
    """A replica that is called."""

    async def call(self, client: HttpClient) -> None:
        answer = said(await client.call(self.tool, {"text": "hello"}))
        assert json.loads(answer)["arguments"] == {"text": "hello"}, answer


async def measure(replicas: dict[str, Replica], calls: int, rounds: int) -> list[Row]:
    """Call each of the replicas in turns; return their rows, in which the others are compared with `FIRST`."""
    targets: dict[str, Called] = {}
    spent = dict.fromkeys(replicas, 0.0)
    for replica in replicas.values():
        await replica.start()
    for name, replica in replicas.items():
        await replica.wait_ready()
        assert replica.process is not None
        targets[name] = Called(name, TOOL, replica.port, replica.process.pid)
        await targets[name].open(MODERN)
    for _ in range(rounds):
        for name, target in targets.items():
            before = cpu_s(target.pid)
            await target.one_by_one(calls)
            spent[name] += cpu_s(target.pid) - before
            await target.at_once(calls)
    rows = []
    quick = quantile(targets[FIRST].milliseconds, 0.05)
    first = quantile(targets[FIRST].milliseconds, 0.5)
    for name, target in targets.items():
        await target.close()
        p5, p50 = (quantile(target.milliseconds, share) for share in (0.05, 0.5))
        rows.append(
            {"where": name, **times_row(target.milliseconds, (5, 50, 95), 3), "added_ms": round(p50 - first, 3),
             "added_p5_ms": round(p5 - quick, 3),
             "calls_per_s": round(statistics.median(target.rates)),
             "cpu_ms": round(1000 * spent[name] / len(target.milliseconds), 3), "load": load_average()}
        )  # fmt: skip
    return rows


async def run(folder: Path, command: Sequence[str], addresses: dict[str, str], calls: int, rounds: int) -> list[Row]:
    """Measure a replica for a SQLite file, and two for each address."""
    replicas = {FIRST: Replica(folder / "sqlite", command, str(folder / "records.sqlite3"), 0.0)}
    for place, (where, address) in enumerate(addresses.items()):
        for commit in COMMITS:
            replicas[f"{where}, {commit}"] = Replica(folder / f"{commit}-{place}", command, address, 0.0, commit=commit)
    try:
        return await measure(replicas, calls, rounds)
    finally:
        for replica in replicas.values():
            if replica.process is not None and replica.process.returncode is None:
                await replica.end()


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the rows."""
    parser = make_parser("bench.fleet.recording", __doc__)
    parser.add_argument("--calls", type=int, default=200, help="calls of one round; default %(default)s")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--delay-ms", type=float, nargs="*", default=[1.0, 5.0], help="round trips of the network")
    add_foretool(parser)
    add_json(parser)
    arguments = parser.parse_args(argv)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recording-")))
        server = DatabaseServer(folder / "database")
        stack.callback(server.close)
        addresses = {"PostgreSQL": server.address}
        for delay in arguments.delay_ms:
            relay = stack.enter_context(relaying(server.address, delay / 1000))
            addresses[f"PostgreSQL, {delay:g} ms away"] = relay
        rows = asyncio.run(run(folder, installed(arguments.foretool), addresses, arguments.calls, arguments.rounds))
    for row in rows:
        print_row(row, arguments.json)


if __name__ == "__main__":
    main()
