"""The tables of a SQLite file: made whole for a new one, and brought up to date in numbered steps for an older one.

`PRAGMA user_version` holds the number of the last step applied, so an up-to-date file is recognised without a query.
The table `migrations` keeps when each step was applied. A new file gets `schema.sql`, which `make
format` writes (`docs/sqlite_schema.py`): the steps take 80 ms and this 3 ms. sqlite-utils is imported only for steps.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from foretool.storage.sql import schema

if TYPE_CHECKING:
    from sqlite_utils import Database

_APPLICATION_ID = 0x666F7265
"""`fore` in ASCII; every file of foretool has it in its header."""

Migration = Callable[["Database"], None]
BASE: Final = 26
"""The number of the first release's tables; files with a smaller one are of versions before it, and are refused."""


def m027_first_probability(db: Database) -> None:
    """Keep the probability that the first match of a search is right, as the gate stated it."""
    db.table("discoveries").add_column("first_probability", float)


def m028_misses_by_kind(db: Database) -> None:
    """Give misses an index by which counting them by kind reads the index alone."""
    db.execute(f"DROP INDEX idx_misses_{'_'.join(schema.BY_TOOL)}")
    db.table("misses").create_index(schema.BY_KIND)


def m029_refused_and_failed_calls(db: Database) -> None:
    """Add the numbers of refused and of failed calls to the sums of costs."""
    for name in ("refused", "failed"):
        db.table("costs").add_column(name, int, not_null_default=0)


def m030_sizes_of_all_tools(db: Database) -> None:
    """Record how many tokens all tools take at each time, so that past calls are not priced with the tools of today;
    and add a likeness to servers, which stays the same when their command is written otherwise."""
    db.table("catalog_sizes").create(
        {"period": int, "most": int, "last": int}, pk="period", not_null={"period", "most", "last"}
    )
    db.table("costs").add_column("rated_refused", int, not_null_default=0)
    db.table("upstreams").add_column("likeness", str, not_null_default="")


def m031_owners_of_prompts(db: Database) -> None:
    """Record which client's hook a prompt came from, and which session it belongs to."""
    for name in ("client", "owner"):
        db.table("prompts").add_column(name, str, not_null_default="")


def m032_prices_of_calls(db: Database) -> None:
    """Record how many tokens all tools take at each change of them, and price each call with that. What is added up
    already keeps the price of its quarter of an hour."""
    db.table("catalog_tokens").create({"at": float, "tokens": int}, pk="at", not_null={"at", "tokens"})
    for name in schema.PRICED:
        db.table("costs").add_column(name, int, not_null_default=0)
    for statement in schema.PRICE_OLD_CALLS:
        db.execute(statement)
    db.table("catalog_sizes").drop()


def m033_no_words_of_tools(db: Database) -> None:
    """Drop the words of all tools, which prompt hooks read."""
    db.table("catalog_summaries").drop()


MIGRATIONS: Final[tuple[Migration, ...]] = (
    m027_first_probability, m028_misses_by_kind, m029_refused_and_failed_calls,
    m030_sizes_of_all_tools, m031_owners_of_prompts, m032_prices_of_calls,
    m033_no_words_of_tools,
)  # fmt: skip
"""The steps after `BASE`, in order. What a released step creates never changes."""
NEWEST: Final = BASE + len(MIGRATIONS)

SCHEMA: Final = Path(__file__).with_name("schema.sql")
"""What the first release and all steps make, as statements."""
BETWEEN: Final = ";\n\n"
"""Stands between the statements of `SCHEMA`, and in none of them."""


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


def migrate(connection: sqlite3.Connection, steps: Sequence[Migration] = MIGRATIONS) -> None:
    """Make the tables of a new file, or apply every missing step, in one transaction under the write lock; `connection`
    is in autocommit mode.

    A second process that opens the same file waits for the lock (as long as the connection's timeout says) and then
    finds nothing left to do. Raises `sqlite3.Error`, with the file as it was before.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        done = schema_version(connection)
        if not done:
            for statement in SCHEMA.read_text("utf-8").removesuffix(BETWEEN).split(BETWEEN):
                connection.execute(statement)
            _mark_applied(connection, NEWEST, SCHEMA.name)
        elif done < BASE + len(steps):
            database = wrap(connection)
            for number, step in enumerate(steps[done - BASE :], start=done + 1):
                step(database)
                _mark_applied(connection, number, step.__name__)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def wrap(connection: sqlite3.Connection) -> Database:
    with _unimportable("numpy", "pandas"):
        from sqlite_utils import Database  # takes 70 ms, which a new file and an up-to-date one do not need
    return Database(connection, recursive_triggers=False, execute_plugins=False)


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


def _mark_applied(connection: sqlite3.Connection, number: int, name: str) -> None:
    connection.execute(
        "INSERT INTO migrations (number, name, applied_at) VALUES (?, ?, ?)", (number, name, time.time())
    )
    # A pragma takes no parameters; both values are integers of this file.
    connection.execute(f"PRAGMA user_version = {number}")
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
