"""The history of the schema: numbered steps, applied in order, never edited once released.

`PRAGMA user_version` holds the number of the last step applied, so that an up-to-date file is recognised without a
query; the table `migrations` keeps when each was. sqlite-utils is imported only when a step has to be applied.

Tables of the log (calls, misses, ...) do not reference each other by foreign keys: a call must be writable even if
its session was never written, or was pruned while it ran.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite_utils import Database

APPLICATION_ID = 0x666F7265
"""`fore` in ASCII, in the header of every file of ours."""

Migration = Callable[["Database"], None]
MIGRATIONS: list[Migration] = []


def migration(step: Migration) -> Migration:
    """Append `step`, whose name starts with its number."""
    MIGRATIONS.append(step)
    assert step.__name__.startswith(f"m{len(MIGRATIONS):03}_"), f"{step.__name__} is step {len(MIGRATIONS)}"
    return step


def schema_version(connection: sqlite3.Connection) -> int:
    """The number of the last step applied to this file; 0 for a new one.

    Raises `sqlite3.DatabaseError` if the file is not one of SQLite.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def is_foreign(connection: sqlite3.Connection) -> bool:
    """Whether another program made this file; `connection` is in autocommit mode."""
    # In one transaction: between two looks another process may have made a new file into one of ours.
    connection.execute("BEGIN")
    try:
        if schema_version(connection) == 0:
            return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
        found: int = connection.execute("PRAGMA application_id").fetchone()[0]
        return found != APPLICATION_ID
    finally:
        connection.execute("COMMIT")


@contextmanager
def _unimportable(*names: str) -> Iterator[None]:
    """sqlite-utils imports these where they are, only to know the types of their values: 14 MiB that stay in memory."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None there is Python's own sign for this
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def migrate(connection: sqlite3.Connection, steps: Sequence[Migration] = MIGRATIONS) -> None:
    """Apply every missing step in one transaction, under the write lock; `connection` is in autocommit mode.

    A second process that opens the same file waits for the lock (as long as the connection's timeout says) and then
    finds nothing left to do. Raises `sqlite3.Error`, with the file as it was before.
    """
    with _unimportable("numpy", "pandas"):
        from sqlite_utils import Database  # 80 ms; an up-to-date file never pays them

    database = Database(connection, recursive_triggers=False, execute_plugins=False)
    connection.execute("BEGIN IMMEDIATE")
    try:
        done = schema_version(connection)
        for number, step in enumerate(steps[done:], start=done + 1):
            step(database)
            _note(connection, number, step.__name__)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _note(connection: sqlite3.Connection, number: int, name: str) -> None:
    connection.execute(
        "INSERT INTO migrations (number, name, applied_at) VALUES (?, ?, ?)", (number, name, time.time())
    )
    # A pragma takes no parameters; both values are integers of this file.
    connection.execute(f"PRAGMA user_version = {number}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _create(
    db: Database, name: str, pk: str | tuple[str, ...], columns: dict[str, type], nullable: tuple[str, ...] = ()
) -> None:
    db.table(name).create(columns, pk=pk, not_null=set(columns) - set(nullable))


@migration
def m001_catalog(db: Database) -> None:
    """What exists: upstreams, their tools, every definition a tool has had, and the names given to them."""
    _create(db, "migrations", "number", {"number": int, "name": str, "applied_at": float})
    _create(db, "counters", "name", {"name": str, "value": int})
    _create(
        db,
        "upstreams",
        "id",
        {
            "id": int,
            "name": str,
            "fingerprint": str,
            "era": str,
            "server_info": str,
            "instructions": str,
            "capabilities": str,
            "lacks": str,
            "listed_at": float,
        },
        nullable=("era", "lacks"),
    )
    db.table("upstreams").create_index(["name", "fingerprint"], unique=True)
    _create(
        db,
        "definitions",
        "id",
        {"id": int, "schema_hash": str, "definition": bytes, "tokens": int},
        nullable=("tokens",),
    )
    db.table("definitions").create_index(["schema_hash"], unique=True)
    db.table("tools").create(
        {"upstream": int, "name": str, "position": int, "exposed": str, "definition": int},
        pk=("upstream", "name"),
        not_null={"upstream", "name", "position", "exposed", "definition"},
        foreign_keys=[("upstream", "upstreams", "id"), ("definition", "definitions", "id")],
    )
    # By the upstream's name, not its id: a new command line continues the history of the same server.
    db.table("tool_versions").create(
        {"upstream": str, "name": str, "definition": int, "first_seen": float},
        pk=("upstream", "name", "definition"),
        not_null={"upstream", "name", "definition", "first_seen"},
        foreign_keys=[("definition", "definitions", "id")],
    )
    _create(db, "exposed_names", "exposed", {"exposed": str, "upstream": str, "name": str})


@migration
def m002_log(db: Database) -> None:
    """What happened: sessions, the lists they were given, discoveries, calls, misses, and what clients do."""
    _create(
        db,
        "sessions",
        "key",
        {
            "key": str,
            "client": str,
            "version": str,
            "era": str,
            "transport": str,
            "profile": str,
            "started_at": float,
            "ended_at": float,
            "first_call": int,
        },
        nullable=("ended_at",),
    )
    db.table("sessions").create_index(["started_at"])
    # Lists repeat (a frozen one in every session) and can be long (`full`), so each is kept once.
    _create(db, "lists", "id", {"id": int, "hash": bytes, "tools": str})
    db.table("lists").create_index(["hash"], unique=True)
    _create(
        db,
        "exposures",
        "id",
        {
            "id": int,
            "session": str,
            "at": float,
            "policy": str,
            "epoch": int,
            "list": int,
            "tokens": int,
            "reason": str,
        },
    )
    db.table("exposures").create_index(["at"])
    _create(
        db,
        "discoveries",
        "id",
        {
            "id": int,
            "session": str,
            "at": float,
            "task": str,
            "names": str,
            "sufficiency": float,
            "level": str,
            "matches": str,
            "tokens": int,
            "took_ms": float,
        },
        nullable=("sufficiency",),
    )
    db.table("discoveries").create_index(["at"])
    # No index: each would cost a page of the write-ahead log, and 4 us, per call.
    _create(
        db,
        "calls",
        "id",
        {
            "id": int,
            "session": str,
            "at": float,
            "tool": str,
            "upstream": str,
            "via": str,
            "hidden": int,
            "outcome": str,
            "took_ms": float,
            "sent": int,
            "arguments": str,
            "discovery": int,
        },
    )
    _create(
        db,
        "misses",
        "id",
        {
            "id": int,
            "session": str,
            "at": float,
            "tool": str,
            "noticed": str,
            "cause": str,
            "rank": int,
            "of": int,
            "query": str,
            "history": str,
            "exposure": int,
            "discovery": int,
            "change": str,
            "recovered": str,
            "turns": int,
            "tokens": int,
            "parts": str,
            "call": int,
        },
    )
    db.table("misses").create_index(["at"])
    _create(
        db,
        "clients",
        ("client", "version", "era"),
        {
            "client": str,
            "version": str,
            "era": str,
            "announced": int,
            "relisted": int,
            "delays": str,
            "last_seen": float,
        },
    )

    _create(db, "usage", "tool", {"tool": str, "calls": int, "misses": int, "last_at": float})
    _create(db, "usage_folded", "id", {"id": int, "call": int, "miss": int})


@migration
def m003_serving(db: Database) -> None:
    """What running proxies share: the list of each profile, and how their upstreams are doing."""
    _create(
        db,
        "working_sets",
        "key",
        {"key": str, "epoch": int, "tools": str, "listing": bytes, "created_at": float, "inputs": str},
    )
    _create(
        db,
        "upstream_states",
        ("pid", "upstream"),
        {
            "pid": int,
            "started_at": float,
            "upstream": str,
            "state": str,
            "since": float,
            "era": str,
            "tools": int,
            "restarts": int,
            "skipped_lines": int,
            "last_error": str,
            "stderr": str,
        },
        nullable=("era",),
    )


@migration
def m004_vectors(db: Database) -> None:
    """Embeddings by the encoder's key and the hash of the text: `data` is float32, `used_at` when last needed."""
    _create(
        db,
        "vectors",
        ("encoder", "digest"),
        {"encoder": str, "digest": bytes, "data": bytes, "used_at": float},
    )


@migration
def m005_learning(db: Database) -> None:
    """What was learned (`storage/sqlite/artifacts.py`), and what was imported to learn from."""
    _create(
        db,
        "artifacts",
        "id",
        {
            "id": int,
            "kind": str,
            "number": int,
            "created_at": float,
            "sha256": str,
            "data": bytes,
            "active": int,
            "previous": int,
            "promoted_at": float,
            "report": str,
        },
    )
    db.table("artifacts").create_index(["kind", "active"])
    _create(db, "demonstrations", "digest", {"digest": bytes, "episode": str, "at": float})


@migration
def m006_steps(db: Database) -> None:
    """What users asked their clients for (`foretool hint`), and what was put together for single steps."""
    _create(db, "prompts", "id", {"id": int, "at": float, "session": str, "cwd": str, "text": str})
    db.table("prompts").create_index(["at"])
    _create(
        db,
        "steps",
        "id",
        {
            "id": int,
            "session": str,
            "at": float,
            "task": str,
            "tools": str,
            "fragments": str,
            "tokens": int,
            "budget": int,
            "probability": float,
            "sufficiency": float,
            "fallback": str,
            "cached": int,
            "error": str,
            "took_ms": float,
        },
        nullable=("sufficiency",),
    )
    db.table("steps").create_index(["at"])


@migration
def m007_handles(db: Database) -> None:
    """Which of a session's conversations a call or a discovery belongs to; "" where nobody said."""
    for table in ("calls", "discoveries"):
        db.table(table).add_column("handle", str, not_null_default="")


@migration
def m008_flows(db: Database) -> None:
    """Which tools' values came back as arguments of which others (`storage/sqlite/flows.py`)."""
    _create(
        db,
        "flows",
        ("before", "after", "field", "parameter"),
        {"before": str, "after": str, "field": str, "parameter": str, "times": int, "last_at": float},
    )


@migration
def m009_probability(db: Database) -> None:
    """What the gate said of each discovery's answer, to be held against what came of it."""
    db.table("discoveries").add_column("probability", float)
