"""The history of the schema: numbered steps, applied in order. What a released step creates never changes.

`PRAGMA user_version` holds the number of the last step applied, so an up-to-date file is recognised without a query.
The table `migrations` keeps when each step was applied. A new file gets `schema.sql`, which is what all steps make
(`make format` writes it), because the steps take 80 ms and this 3 ms. sqlite-utils is imported only when a step has to
be applied to an older file.

Tables of the log (calls, misses, ...) do not reference each other by foreign keys: a call must be writable even if
its session was never written.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sqlite_utils import Database

_APPLICATION_ID = 0x666F7265
"""`fore` in ASCII; every file of foretool has it in its header."""

Migration = Callable[["Database"], None]
MIGRATIONS: list[Migration] = []

SCHEMA: Final = Path(__file__).with_name("schema.sql")
"""What all steps make, as statements."""
_BETWEEN: Final = ";\n\n"
"""Stands between the statements of `SCHEMA`, and in none of them."""

_TYPES = {"int": int, "float": float, "str": str, "bytes": bytes}


def migration(step: Migration) -> Migration:
    """Add a step to the history; its name starts with its number."""
    MIGRATIONS.append(step)
    assert step.__name__.startswith(f"m{len(MIGRATIONS):03}_"), f"{step.__name__} is step {len(MIGRATIONS)}"
    return step


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the number of the last step applied, 0 for a new file; raises `sqlite3.DatabaseError` for other files."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def is_foreign(connection: sqlite3.Connection) -> bool:
    """Return whether another program made this file; `connection` is in autocommit mode."""
    # One transaction: between two reads another process may have migrated a new file.
    connection.execute("BEGIN")
    try:
        if schema_version(connection) == 0:
            return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
        found: int = connection.execute("PRAGMA application_id").fetchone()[0]
        return found != _APPLICATION_ID
    finally:
        connection.execute("COMMIT")


@contextmanager
def _unimportable(*names: str) -> Iterator[None]:
    """Hide modules that sqlite-utils imports only to know their types: they would take 14 MiB of memory for good."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None is how Python marks this
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
    connection.execute("BEGIN IMMEDIATE")
    try:
        done = schema_version(connection)
        if not done and (statements := _read_schema(steps)):
            for statement in statements:
                connection.execute(statement)
            for number, step in enumerate(steps, start=1):
                _mark_applied(connection, number, step.__name__)
        elif done < len(steps):
            _apply(connection, steps, done)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _apply(connection: sqlite3.Connection, steps: Sequence[Migration], done: int) -> None:
    """Apply the steps after the first `done`, inside a transaction."""
    with _unimportable("numpy", "pandas"):
        from sqlite_utils import Database  # takes 70 ms, which a new file and an up-to-date one do not need

    database = Database(connection, recursive_triggers=False, execute_plugins=False)
    for number, step in enumerate(steps[done:], start=done + 1):
        step(database)
        _mark_applied(connection, number, step.__name__)


def _read_schema(steps: Sequence[Migration]) -> list[str]:
    """Return the statements that make what these steps make; none where the file was written for other steps."""
    head, *statements = SCHEMA.read_text("utf-8").removesuffix(_BETWEEN).split(_BETWEEN)
    return statements if head == _head_of(steps) else []


def write_schema(steps: Sequence[Migration] = MIGRATIONS) -> str:
    """Apply all steps to an empty database, and return the statements that make the same."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        _apply(connection, steps, 0)
        made = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        counters = connection.execute("SELECT name, value FROM counters ORDER BY name").fetchall()
    rows = [f"INSERT INTO counters (name, value) VALUES ('{name}', {value})" for name, value in counters]  # noqa: S608
    return _BETWEEN.join([_head_of(steps), *(sql for (sql,) in made), *rows, ""])


def _head_of(steps: Sequence[Migration]) -> str:
    """Return the first line of `SCHEMA`, which names the last of the steps that it stands for."""
    return f"-- Generated by docs/generate.py from migrations.py, up to {steps[-1].__name__}" if steps else ""


def _mark_applied(connection: sqlite3.Connection, number: int, name: str) -> None:
    connection.execute(
        "INSERT INTO migrations (number, name, applied_at) VALUES (?, ?, ?)", (number, name, time.time())
    )
    # A pragma takes no parameters; both values are integers of this file.
    connection.execute(f"PRAGMA user_version = {number}")
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")


def _create(db: Database, **tables: str) -> None:
    """Create tables, each given by its columns: a name, and a type of `_TYPES`.

    A star marks the columns of the primary key, a question mark a column that may be NULL, and `>` the table whose ids
    a column holds.
    """
    for name, spec in tables.items():
        columns = [each.split() for each in spec.split(",")]
        keys = tuple(column[1:] for column, _ in columns if column.startswith("*"))
        types = {column.lstrip("*"): type for column, type in columns}
        db.table(name).create(
            {column: _TYPES[type.partition(">")[0].rstrip("?")] for column, type in types.items()},
            pk=keys if len(keys) > 1 else keys[0],
            not_null={column for column, type in types.items() if not type.endswith("?")},
            foreign_keys=[(column, type.partition(">")[2], "id") for column, type in types.items() if ">" in type],
        )


def _index(db: Database, table: str, *columns: str, unique: bool = False) -> None:
    db.table(table).create_index(columns, unique=unique)


@migration
def m001_catalog(db: Database) -> None:
    """Create what exists: upstreams, their tools, every definition of a tool, and the names given to tools."""
    _create(
        db,
        migrations="*number int, name str, applied_at float",
        counters="*name str, value int",
        upstreams="*id int, name str, fingerprint str, era str?, server_info str, instructions str, capabilities str,"
        "lacks str?, listed_at float",
        definitions="*id int, schema_hash str, definition bytes, tokens int?",
        tools="*upstream int>upstreams, *name str, position int, exposed str, definition int>definitions",
        # By the upstream's name, not its id: a new command line continues the history of the same server.
        tool_versions="*upstream str, *name str, *definition int>definitions, first_seen float",
        exposed_names="*exposed str, upstream str, name str",
    )
    _index(db, "upstreams", "name", "fingerprint", unique=True)
    _index(db, "definitions", "schema_hash", unique=True)


@migration
def m002_log(db: Database) -> None:
    """Create what happened: sessions, their lists, discoveries, calls, misses, and what clients do."""
    _create(
        db,
        sessions="*key str, client str, version str, era str, transport str, profile str, started_at float,"
        "ended_at float?, first_call int",
        # Lists repeat (a frozen one in every session) and can be long (`full`), so each is kept once.
        lists="*id int, hash bytes, tools str",
        exposures="*id int, session str, at float, policy str, epoch int, list int, tokens int, reason str",
        discoveries="*id int, session str, at float, task str, names str, sufficiency float?, level str, matches str,"
        "tokens int, took_ms float",
        # No index: each would cost a page of the write-ahead log, and 4 us, per call.
        calls="*id int, session str, at float, tool str, upstream str, via str, hidden int, outcome str, took_ms float,"
        "sent int, arguments str, discovery int",
        misses="*id int, session str, at float, tool str, noticed str, cause str, rank int, of int, query str,"
        "history str, exposure int, discovery int, change str, recovered str, turns int, tokens int, parts str,"
        "call int",
        clients="*client str, *version str, *era str, announced int, relisted int, delays str, last_seen float",
        usage="*tool str, calls int, misses int, last_at float",
        usage_folded="*id int, call int, miss int",
    )
    _index(db, "sessions", "started_at")
    _index(db, "lists", "hash", unique=True)
    for table in ("exposures", "discoveries", "misses"):
        _index(db, table, "at")


@migration
def m003_serving(db: Database) -> None:
    """Create what running proxies share: the list of each profile, and the state of their upstreams."""
    _create(
        db,
        working_sets="*key str, epoch int, tools str, listing bytes, created_at float, inputs str",
        upstream_states="*pid int, started_at float, *upstream str, state str, since float, era str?, tools int,"
        "restarts int, skipped_lines int, last_error str, stderr str",
    )


@migration
def m004_vectors(db: Database) -> None:
    """Create the embeddings, by the encoder's key and the hash of the text; `data` is float32."""
    _create(db, vectors="*encoder str, *digest bytes, data bytes, used_at float")


@migration
def m005_learning(db: Database) -> None:
    """Create what was learned, and what was imported to learn from."""
    _create(
        db,
        artifacts="*id int, kind str, number int, created_at float, sha256 str, data bytes, active int, previous int,"
        "promoted_at float, report str",
        demonstrations="*digest bytes, episode str, at float",
    )
    _index(db, "artifacts", "kind", "active")


@migration
def m006_steps(db: Database) -> None:
    """Create what users asked their clients for (`foretool hint`), and what was selected for single steps."""
    _create(
        db,
        prompts="*id int, at float, session str, cwd str, text str",
        steps="*id int, session str, at float, task str, tools str, fragments str, tokens int, budget int,"
        "probability float, sufficiency float?, fallback str, cached int, error str, took_ms float",
    )
    for table in ("prompts", "steps"):
        _index(db, table, "at")


@migration
def m007_handles(db: Database) -> None:
    """Add the conversation to which a call or a discovery belongs; "" if not known."""
    for table in ("calls", "discoveries"):
        db.table(table).add_column("handle", str, not_null_default="")


@migration
def m008_flows(db: Database) -> None:
    """Create the flows: which tools' results came back as arguments of which other tools."""
    _create(db, flows="*before str, *after str, *field str, *parameter str, times int, last_at float")


@migration
def m009_probability(db: Database) -> None:
    """Add what the gate predicted for each discovery, to compare with its outcome."""
    db.table("discoveries").add_column("probability", float)


@migration
def m010_approvals(db: Database) -> None:
    """Create the definitions of servers that were approved, wait for a decision, or were refused."""
    _create(
        db,
        # The value is last: it is long, and most questions are about the others.
        approvals="*server str, *kind str, *name str, *hash str, state str, seen_at float, exposed str,"
        "fingerprint str, version str, effect str, decision int, value bytes",
    )
    # What waits is asked for all the time, and is a few rows of thousands.
    db.execute("CREATE INDEX idx_approvals_undecided ON approvals (server, kind) WHERE state != 'approved'")


@migration
def m011_named(db: Database) -> None:
    """Add the tools that the definitions of our bridges name beside those that a list holds."""
    db.table("working_sets").add_column("named", str, not_null_default="[]")


@migration
def m012_tries(db: Database) -> None:
    """Add what a client did after the latest announcements, and how often it was tried."""
    db.table("clients").add_column("recent", str, not_null_default="")
    db.table("clients").add_column("tries", int, not_null_default=0)


@migration
def m013_late(db: Database) -> None:
    """Add how often a client listed again later than it should have."""
    db.table("clients").add_column("late", int, not_null_default=0)


@migration
def m014_whole(db: Database) -> None:
    """Add up to how many tokens a list of all tools was measured to pay for a client."""
    db.table("clients").add_column("whole_tokens", int, not_null_default=0)


@migration
def m015_sums(db: Database) -> None:
    """Create what the log comes to, so that nobody has to read all of it, and the indexes that listings need."""
    _create(
        db,
        costs="*period int, *client str, tasks int, calls int, hidden int, misses int, discoveries int,"
        "list_tokens int, said_tokens int, read_tokens int",
        # By table of the log: its records up to `done` are added up, except for those that `costs_open` says belong to
        # a stretch that goes on: of a time since `since`, and with an id of at least the one in the table's column.
        # Of `calls` the number of the records up to `done` is kept as well.
        costs_marks="*name str, done int, count int",
        costs_open="*session str, since float, calls int, discoveries int, exposures int, misses int",
    )
    _index(db, "misses", "tool", "cause", "at", "recovered", "turns", "tokens", "session")
    _index(db, "exposures", "session")
    _index(db, "exposures", "list")


@migration
def m016_machines(db: Database) -> None:
    """Tell the proxies of several machines apart; what they say of their servers, they say again."""
    db.table("upstream_states").drop()
    _create(
        db,
        upstream_states="*machine str, *pid int, started_at float, *upstream str, state str, since float, era str?,"
        "tools int, restarts int, skipped_lines int, last_error str, stderr str, seen_at float",
    )


@migration
def m017_audit(db: Database) -> None:
    """Create the log of who did what, which only grows: the database refuses to change or delete a row."""
    _create(
        db,
        audit="*id int, at float, principal str, name str, client str, profile str, action str, target str,"
        "outcome str, detail str, session str",
    )
    _index(db, "audit", "at")
    _index(db, "audit", "principal", "at")
    for change in ("UPDATE", "DELETE"):
        db.execute(
            f"CREATE TRIGGER audit_refuses_{change.lower()} BEFORE {change} ON audit"
            " BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END"
        )


@migration
def m018_grants(db: Database) -> None:
    """Create what people have allowed foretool to do at servers for them, sealed with a key that is not here, and the
    consents that are under way."""
    _create(
        db,
        grants="*server str, *person str, sealed bytes, at float",
        consents="*ident bytes, sealed bytes, until float",
    )


@migration
def m019_session_people(db: Database) -> None:
    """Create whose a session was, where people share the store, and whether it may be learned from."""
    _create(db, session_people="*session str, person str, learns int, at float")


@migration
def m020_catalog_summaries(db: Database) -> None:
    """Create what a start has to know of a large catalog before it reads it, and count the changes that outdate it."""
    _create(db, catalog_summaries="*inputs str, changes int, summary bytes")
    counted = "UPDATE counters SET value = value + 1 WHERE name = 'catalog'"
    for table in ("tools", "exposed_names"):
        for change in ("INSERT", "UPDATE", "DELETE"):
            name = f"{table}_count_{change.lower()}"
            db.execute(f"CREATE TRIGGER {name} AFTER {change} ON {table} BEGIN {counted}; END")
    db.execute("INSERT INTO counters (name, value) VALUES ('catalog', 1)")


@migration
def m021_wordings(db: Database) -> None:
    """Create what language models have answered about tools, by the hash of the text that they were given."""
    _create(
        db,
        wordings="*digest bytes, model str, version int, server str, tool str, texts str, tokens int, took_s float,"
        "at float",
    )


@migration
def m022_profile_usage(db: Database) -> None:
    """Create how often the sessions of each profile used each tool, and after which call and miss that is counted."""
    _create(db, profile_usage="*profile str, *tool str, calls int, misses int, last_at float")
    for table, column in (("calls", "call"), ("misses", "miss")):
        db.execute(
            f"INSERT INTO counters (name, value) SELECT 'profile_usage.{table}', {column} FROM usage_folded"  # noqa: S608
            f" WHERE {column} > 0"
        )


@migration
def m023_rated_costs(db: Database) -> None:
    """Add what belongs to tasks whose end is known, of which rates are formed; the log is added up again."""
    for name in ("tasks", "calls", "hidden", "misses", "discoveries", "read_tokens"):
        db.table("costs").add_column(f"rated_{name}", int, not_null_default=0)
    for table in ("costs", "costs_marks", "costs_open"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608  # a constant


@migration
def m024_failures(db: Database) -> None:
    """Create why servers could not be used when they were last tried, by the entry of the config."""
    _create(
        db,
        failures="*server str, *entry str, code str, reason str, first_at float, last_at float, times int,due_at float",
    )


@migration
def m025_kept_calls(db: Database) -> None:
    """Create the calls that take longer than their clients wait, and what came of them."""
    _create(
        db,
        kept_calls="*ident str, owner str, session str, tool str, upstream str, task str, era str, machine str,"
        "pid int, process_at float, started_at float, until float, reply str, record str",
    )


@migration
def m026_code_sessions(db: Database) -> None:
    """Add in how many more sessions a client gets all tools, because code of its model makes its calls."""
    db.table("clients").add_column("code_sessions", int, not_null_default=0)
