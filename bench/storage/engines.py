"""Times what recording costs before an answer, in a SQLite file and in PostgreSQL near and far.

    python -m bench.storage.engines postgresql://user:password@host:port/database [--calls 2000] [--json]

Each row is one way to write: one call, eight calls at once, one call with the miss that it revealed. `p50_ms` and
`p95_ms` are the time until the records are kept, `cpu_ms` is this process's processor time for one of them. The delays
are those of a round trip, made by a proxy on loopback. The tables go into a schema of their own, `foretool_bench`,
which is removed at the end.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

from bench.metrics import quantile
from bench.options import add_json, make_parser
from bench.processes import load_average
from bench.reports import Row, print_row
from bench.storage.slow_network import SlowNetwork
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Miss, ToolId
from foretool.storage.stores import Store

SCHEMA: Final = "foretool_bench"
CALL: Final = Call(
    "0123456789abcdef0123456789abcdef", 1_700_000_000.0, ToolId("git__git_log"), "git", "name", True, "ok", 12.5, True,
    '{"repo_path":"string","max_count":"integer"}', 0,
)  # fmt: skip
MISS: Final = Miss(
    CALL.session, CALL.at, CALL.tool, "call", "budget", 3, 44, "", (ToolId("git__git_status"),), 1, 0,
    "pin git__git_log", "called", 0, 0, call=1,
)  # fmt: skip
WRITES: Final[dict[str, Callable[[Store], None]]] = {
    "one call": lambda store: store.calls.record([CALL]),
    "eight calls": lambda store: store.calls.record([CALL] * 8),
    "a call and its miss": lambda store: store.calls.record([CALL], [MISS]),
}


def time_writes(where: str, store: Store, calls: int) -> Iterator[Row]:
    """Measure each way to write."""
    for what, write in WRITES.items():
        for _ in range(20):
            write(store)
        taken = []
        processor = time.process_time()
        for _ in range(calls):
            begun = time.perf_counter()
            write(store)
            taken.append((time.perf_counter() - begun) * 1000)
        processor = (time.process_time() - processor) * 1000 / calls
        yield {
            "where": where, "what": what, "p50_ms": round(quantile(taken, 0.5), 3),
            "p95_ms": round(quantile(taken, 0.95), 3), "cpu_ms": round(processor, 3), "load": load_average(),
        }  # fmt: skip


@contextmanager
def empty_schema(address: str) -> Iterator[str]:
    """Make the schema; give the address that leads to it."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
        yield f"{address}{'&' if '?' in address else '?'}options={quote(f'-csearch_path={SCHEMA}')}"
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


def through(address: str, port: int) -> str:
    """Return the address by way of a port of this machine."""
    parts = urlsplit(address)
    user = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{user}{'@' if user else ''}127.0.0.1:{port}"))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser("bench.storage.engines", __doc__)
    parser.add_argument("address")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--delay-ms", type=float, nargs="*", default=[1.0, 5.0])
    add_json(parser)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        file = stack.enter_context(open_store(Path(folder, "s.sqlite3")))
        for row in time_writes("SQLite", file, options.calls):
            print_row(row, options.json)
        address = stack.enter_context(empty_schema(options.address))
        near = stack.enter_context(open_store(address))
        for row in time_writes("PostgreSQL", near, options.calls):
            print_row(row, options.json)
        with open_store(f"{address}{quote(' -csynchronous_commit=off')}") as store:
            for row in time_writes("PostgreSQL, synchronous_commit=off", store, options.calls):
                print_row(row, options.json)
        target = urlsplit(options.address)
        for delay in options.delay_ms:
            network = SlowNetwork(target.hostname or "127.0.0.1", target.port or 5432, delay / 2000)
            with network.running(), open_store(through(address, network.port)) as store:
                for row in time_writes(f"PostgreSQL, {delay:g} ms away", store, max(options.calls // 10, 20)):
                    print_row(row, options.json)


if __name__ == "__main__":
    main()
