"""Opens the SQLite file and runs statements; a file that cannot be used makes a proxy wait, not end.

The connection is in autocommit mode, so every transaction is one that this file begins. Several processes share the
file through a write-ahead log. A write that cannot get the lock within `busy_ms`, or has no room on the disk, raises
`StorageError` and leaves nothing in the file.

A commit survives the death of the process. It does not fsync (`synchronous=NORMAL`): a power cut may lose the last
moments, but does not damage the file. Commits fill the write-ahead log, and moving the log into the file does need
fsyncs: with SQLite's defaults that stalls the event loop for 4 ms every few hundred calls. `checkpoint` therefore moves
the log from a worker thread. SQLite's own checkpoint still runs at `_BACKSTOP_PAGES` (in `connecting`), so the log
stays bounded even if nobody calls `checkpoint`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.json import Decoder

from foretool.storage.records import ToolId
from foretool.storage.redaction import Known, Redaction
from foretool.storage.sqlite.connecting import connect, connect_existing
from foretool.storage.sqlite.errors import Location, explain_error
from foretool.storage.sqlite.files import identify
from foretool.storage.sqlite.health import examine
from foretool.storage.sqlite.migrations import MIGRATIONS
from foretool.storage.stores import StorageError

_OPENING_S = 5.0
"""How long opening waits for another process that migrates the same file."""

_SERVING_S = 0.2
"""How long opening waits so before a proxy begins to serve without the file, and at each later try."""
_EXAMINING_S = 5.0

_CHECKPOINT_COMMITS = 250
"""Commits after which a `checkpoint` is worth a thread: 2 to 4 MiB of log."""

_TRANSACTION = ("COMMIT", ("ROLLBACK",))
_SAVEPOINT = ("RELEASE inner_block", ("ROLLBACK TO inner_block", "RELEASE inner_block"))

Values = Sequence[Any] | Mapping[str, Any]
R = TypeVar("R", bound=msgspec.Struct)

TOOL_IDS = Decoder(tuple[ToolId, ...])
STRINGS = Decoder(tuple[str, ...])


class Database:
    """One open connection. One thread uses it, except for `checkpoint`; other processes open their own.

    Every method may raise `StorageError`. A write that raised has left nothing in the file and may be repeated.
    """

    def __init__(
        self, connection: sqlite3.Connection | None, path: Location, busy_ms: int = 250, *, serves: bool = False
    ) -> None:
        """Wrap an open, migrated connection in autocommit mode; use `Database.open` for a path.

        `serves`: let go of a file that cannot be used, and wait until `reopen` can use it again.
        """
        self.path = path
        self.trouble = self.notice = ""
        self._held = connection
        self._serves = serves
        self._busy_ms = busy_ms
        self._file = identify(path)
        # 0 outside every `atomic`; the connection's own `in_transaction` may outlive it if a rollback failed.
        self._depth = 0
        # Commits since the last `checkpoint`: a guess at the length of the log.
        self._commits = 0
        self._redaction = Redaction()

    @classmethod
    def open(cls, path: Location, busy_ms: int) -> Database:
        """Open the file; create and migrate it if needed. See `storage.opening.open_store`."""
        return cls(connect(path, busy_ms, _OPENING_S), path, busy_ms)

    @classmethod
    def open_to_serve(cls, path: Location, busy_ms: int) -> Database:
        """Open the file if it can be had at once; otherwise wait for it as `reopen` does. Never raises."""
        try:
            return cls(connect(path, busy_ms, _SERVING_S), path, busy_ms, serves=True)
        except StorageError as error:
            waiting = cls(None, path, busy_ms, serves=True)
            waiting.trouble = str(error)
            return waiting

    def close(self) -> None:
        """Close the connection; the last process to close the file also empties the log (up to some 10 ms)."""
        held, self._held = self._held, None
        if held is not None:
            held.close()

    # A file that cannot be used

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._held is None:
            raise StorageError(self.trouble or f"{self.path}: closed", temporary=True)
        return self._held

    def _explain(self, error: Exception) -> StorageError:
        """Return what to raise for an error of SQLite; let go of the file if it cannot be used any more."""
        found = explain_error(error, self.path, self._busy_ms)
        if not (found.lost and self._serves):
            return found
        self._let_go(str(found))
        return StorageError(str(found), temporary=True)

    def _let_go(self, trouble: str) -> None:
        self.trouble, self.notice = trouble, ""
        self.close()

    def check(self) -> None:
        """Let go of a file that was removed or replaced, which would take writes into nothing."""
        if self._held is None or not self._serves or not isinstance(self.path, Path):
            return
        if identify(self.path) != self._file:
            found = "another file took its place" if self.path.exists() else "it was removed"
            self._let_go(f"{self.path}: {found} while it was open")
            return
        with suppress(StorageError):
            (version,) = self.rows("PRAGMA user_version")[0]
            newer = f"{self.path}: changed by a newer foretool (schema {version}); restart this proxy with that version"
            self.notice = newer if version > len(MIGRATIONS) else ""

    def reopen(self) -> bool:
        """Try to use the file again, from any thread. Returns whether it can be used; if not, `trouble` says why."""
        if self._held is not None:
            return True
        try:
            if isinstance(self.path, Path) and self.path.exists():
                problems = examine(self.path, _EXAMINING_S).problems
                if problems:
                    raise StorageError(f"{self.path}: damaged ({problems[0]}); move it away, or restore a copy")  # noqa: TRY301
            found = connect(self.path, self._busy_ms, _SERVING_S, writes=True)
        except StorageError as error:
            self.trouble = str(error)
            return False
        self._file = identify(self.path)
        self.trouble, self._held = "", found
        return True

    def hide(self, known: Callable[[], Known]) -> None:
        """Keep these secrets out of every text from now on, as well as whatever looks like a secret."""
        self._redaction = Redaction(known)

    def hide_like(self, other: Database) -> None:
        """Keep the same secrets out as another connection does."""
        self._redaction = Redaction(other._redaction.known)

    def clean(self, text: str) -> str:
        """Return a text without secrets, as it may be written."""
        return self._redaction.clean(text)

    # Transactions

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Write everything inside the block, or nothing; blocks nest.

        The block takes the write lock at once, so keep it short and never await in it. Let a `StorageError` leave the
        outermost block.
        """
        with self._block("BEGIN IMMEDIATE"):
            yield
        if not self._depth:
            self._commits += 1

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one state of the file inside the block, whatever other processes write meanwhile."""
        with self._block("BEGIN"):
            yield

    @contextmanager
    def _block(self, begin: str) -> Iterator[None]:
        commit, undo = _SAVEPOINT if self._depth else _TRANSACTION
        self._settle()
        try:
            self.run("SAVEPOINT inner_block" if self._depth else begin)
        except StorageError:
            self._settle()
            raise
        self._depth += 1
        try:
            yield
            self.run(commit)
        except BaseException:
            # SQLite itself has already rolled back after some errors (full disk, I/O).
            if self._held is not None and self._held.in_transaction:
                for statement in undo:
                    self.run(statement)
            raise
        finally:
            self._depth -= 1

    def _settle(self) -> None:
        """Roll back a transaction whose rollback failed; without this the next commit would not happen."""
        if not self._depth and self._held is not None and self._held.in_transaction:
            self.run("ROLLBACK")

    # Statements

    def commit(self, sql: str, values: Sequence[Any]) -> None:
        """Write one clean row in a commit of its own, without the cost of an `atomic` block."""
        self._settle()
        self._execute(sql, values)
        self._commits += 1

    def run(self, sql: str, values: Values = ()) -> sqlite3.Cursor:
        """Run one statement."""
        return self._execute(sql, self._clean(values))

    def _execute(self, sql: str, values: Values) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, values)
        except UnicodeEncodeError:
            return self._execute(sql, _replace_surrogates(values))
        except (sqlite3.Error, OverflowError) as error:
            raise self._explain(error) from error

    def run_all(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row; call it inside `atomic`."""
        try:
            # Rows are checked first: when one cannot be written, those before it would already be in.
            rows = [row if all(map(_is_writable, row)) else _replace_surrogates(row) for row in map(self._clean, rows)]
            self._connection.executemany(sql, rows)
        except (sqlite3.Error, OverflowError) as error:
            raise self._explain(error) from error

    def write_all(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row, in one transaction."""
        with self.atomic():
            self.run_all(sql, rows)

    def insert(self, sql: str, row: Sequence[Any]) -> int:
        """Insert one row; return its id."""
        with self.atomic():
            self.run(sql, row)
            return self.last_id()

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        try:
            return self._connection.execute(sql, self._clean(values)).fetchall()
        except sqlite3.Error as error:
            raise self._explain(error) from error

    def each_row(self, sql: str, values: Values = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query one by one, for a query with many rows of which little is kept."""
        try:
            yield from self._connection.execute(sql, self._clean(values))
        except sqlite3.Error as error:
            raise self._explain(error) from error

    def row(self, sql: str, values: Values = ()) -> tuple[Any, ...] | None:
        """Return the first row of a query, or None."""
        rows = self.rows(sql, values)
        return rows[0] if rows else None

    def last_id(self) -> int:
        """Return the id of the row inserted last."""
        # Not the cursor's `lastrowid`, which `executemany` leaves unset.
        return int(self.rows("SELECT last_insert_rowid()")[0][0])

    def clean_places(self, values: tuple[Any, ...], places: Iterable[int]) -> tuple[Any, ...]:
        """Return the values without the secrets in those at these places."""
        for place in places:
            if (value := values[place]) and (cleaned := self._redaction.clean(value)) is not value:
                values = (*values[:place], cleaned, *values[place + 1 :])
        return values

    def _clean(self, values: Any) -> Any:
        """Return the values without the secrets in what others said. Those of a query too, so that it finds them."""
        # Each call is recorded through here, and most rows hold nothing that others said.
        if type(values) is dict or Said not in map(type, values):
            return values
        clean = self._redaction.clean
        return [str(clean(value)) if type(value) is Said else value for value in values]

    # The write-ahead log

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether enough was written since the last `checkpoint` to be worth a thread."""
        return self._commits >= _CHECKPOINT_COMMITS

    def checkpoint(self) -> int:
        """Move the write-ahead log into the file, from any thread; it neither waits nor blocks a writer.

        Returns the number of pages that had to stay in the log because a reader or a later write still needs them.
        """
        self._commits = 0
        if not isinstance(self.path, Path):
            return 0
        try:
            with closing(connect_existing(self.path)) as connection:
                _, in_log, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            raise explain_error(error, self.path, 0) from error
        return int(in_log - moved)

    def truncate_log(self) -> bool:
        """Move the whole log into the file and empty it. Returns False if another process still uses the log."""
        (busy, *_), *_ = self.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        return not busy


# SQL and values


def insert_into(table: str, columns: Sequence[str]) -> str:
    """Return the INSERT of one row; both names are constants of this folder."""
    places = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({quote_columns(columns)}) VALUES ({places})"  # noqa: S608


def quote_columns(columns: Sequence[str]) -> str:
    """Return the columns as SQL lists them."""
    return ", ".join(f'"{column}"' for column in columns)


class Said(str):
    """A text that a user, a client or a server wrote: secrets are taken out of it before it is written.

    Names of tools, keys and hashes are no such texts: they must stay what they are, or records would not fit together.
    """

    __slots__ = ()


class Subject:
    """One subject of the store: its own tables in the open file."""

    def __init__(self, database: Database) -> None:
        self._database = database


class Table(Generic[R]):
    """Turns records of one type into rows of the table whose columns have the names of their fields, and back.

    `decoders` read the fields that are kept as JSON; `flags` are the fields that are booleans; `said` are those that a
    user, a client or a server wrote.
    """

    def __init__(
        self,
        name: str,
        record: type[R],
        decoders: Mapping[str, Decoder[Any]] = {},
        flags: Sequence[str] = (),
        said: Sequence[str] = (),
    ) -> None:
        fields = record.__struct_fields__
        columns = [field for field in fields if field != "id"]
        self.insert = insert_into(name, columns)
        self.select = f"SELECT {quote_columns(fields)} FROM {name}"  # noqa: S608  # a constant of this folder
        self.said = frozenset(said)
        self.places = tuple(columns.index(field) for field in said)
        """Where in `values` the texts stand that others said."""
        self.values: Callable[[R], tuple[Any, ...]] = attrgetter(*columns)
        """Returns the fields of a record as they are."""
        self.row: Callable[[R], tuple[Any, ...]] = self.values
        if decoders or said:
            get = self.values
            encoded, marked = ([columns.index(field) for field in some] for some in (decoders, said))
            self.row = lambda each: _encode_fields(get(each), encoded, marked)
        self._record = record
        self._readers = [(fields.index(field), decoder.decode) for field, decoder in decoders.items()]
        self._readers += [(fields.index(field), bool) for field in flags]

    def find(self, database: Database, rest: str, values: Values = ()) -> R | None:
        """Return the first record of a query; `rest` is what follows the table's name in the SELECT."""
        row = database.row(f"{self.select} {rest}", values)
        return self.read(row) if row else None

    def find_all(self, database: Database, rest: str, values: Values = ()) -> list[R]:
        """Return all records of a query."""
        return [self.read(row) for row in database.rows(f"{self.select} {rest}", values)]

    def read(self, row: Sequence[Any]) -> R:
        """Return the record of a row that `select` found."""
        values = list(row)
        for place, reader in self._readers:
            values[place] = reader(values[place])
        return self._record(*values)


def _encode_fields(row: tuple[Any, ...], encoded: Sequence[int], said: Sequence[int]) -> tuple[Any, ...]:
    values = list(row)
    for place in encoded:
        values[place] = encode_json(values[place])
    for place in said:
        if value := values[place]:
            values[place] = Said(value)
    return tuple(values)


def encode_json(value: object) -> str:
    """Return the JSON of a value; an unpaired surrogate in it becomes a question mark."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return str(_replace_surrogate(json.dumps(msgspec.to_builtins(value), ensure_ascii=False)))


def _is_writable(value: object) -> bool:
    return not isinstance(value, str) or value.isascii() or _replace_surrogate(value) == value


def _replace_surrogates(values: Values) -> Any:
    """Put question marks in place of unpaired surrogates, which JSON may contain and UTF-8 may not."""
    if isinstance(values, Mapping):
        return {key: _replace_surrogate(value) for key, value in values.items()}
    return [_replace_surrogate(value) for value in values]


def _replace_surrogate(value: object) -> object:
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
