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

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from foretool.storage.engine import NEWER_VERSION, StorageError
from foretool.storage.sql.database import Database, Values, is_writable, replace_surrogates
from foretool.storage.sqlite.connecting import (
    Location,
    connect,
    connect_existing,
    connect_unwritable,
    examine,
    explain_error,
)
from foretool.storage.sqlite.files import identify, is_empty
from foretool.storage.sqlite.leads import FileLead
from foretool.storage.sqlite.migrations import NEWEST

_OPENING_S = 5.0
"""How long opening waits for another process that migrates the same file."""

_SERVING_S = 0.2
"""How long opening waits so before a proxy begins to serve without the file, and at each later try."""
_EXAMINING_S = 5.0

_CHECKPOINT_COMMITS = 250
"""Commits after which a `checkpoint` is worth a thread: 2 to 4 MiB of log."""
_CHECKPOINT_ROWS = 1000
"""Rows after which it is, too: a list of tools is written in few commits, with up to two pages a row."""

_FAILURES = (sqlite3.Error, OverflowError, MemoryError)
"""What a statement may raise."""
_TRANSACTION = ("COMMIT", ("ROLLBACK",))
_SAVEPOINT = ("RELEASE inner_block", ("ROLLBACK TO inner_block", "RELEASE inner_block"))

_OWN_BUSY_MS = 1000
"""How long a thread that deletes old records waits for another writer."""
_FREED_PAGES = 500
_PAUSE_S = 0.02
"""Pages that are given back at once, and the pause between, in which other writers get their turn."""


class SqliteDatabase(Database):
    """One open file."""

    gives_ids_again = True

    def __init__(
        self, connection: sqlite3.Connection | None, path: Location, busy_ms: int = 250, *, serves: bool = False
    ) -> None:
        """Wrap an open, migrated connection in autocommit mode; use `SqliteDatabase.open` for a path."""
        super().__init__(path, serves=serves)
        self._place = path
        self._held: sqlite3.Connection | None = connection
        self._busy_ms = busy_ms
        self._begin = "BEGIN IMMEDIATE"
        self._file = identify(path)
        # 0 outside every `atomic`; the connection's own `in_transaction` may outlive it if a rollback failed.
        self._depth = 0
        # Commits since the last `checkpoint`: a guess at the length of the log.
        self._commits = 0
        # What the connection's count of written rows was at the last `checkpoint`; None where it is not known.
        self._rows_before: int | None = None

    @classmethod
    def open(cls, path: Location, busy_ms: int) -> SqliteDatabase:
        """Open the file; create and migrate it if needed. See `storage.opening.open_store`."""
        return cls(connect(path, busy_ms, _OPENING_S), path, busy_ms)

    @classmethod
    def open_unwritable(cls, path: Path, reason: str) -> SqliteDatabase | None:
        """Open a file that cannot be written for reading; None where that cannot be. `reason`: why not."""
        if (connection := connect_unwritable(path)) is None:
            return None
        opened = cls(connection, path, 0)
        opened.notice, opened._begin = reason, "BEGIN"
        return opened

    @classmethod
    def open_to_serve(cls, path: Location, busy_ms: int) -> SqliteDatabase:
        """Open the file if it can be had at once; otherwise wait for it as `reopen` does. Never raises."""
        try:
            return cls(connect(path, busy_ms, _SERVING_S), path, busy_ms, serves=True)
        except StorageError as error:
            waiting = cls(None, path, busy_ms, serves=True)
            waiting.trouble = str(error)
            return waiting

    # A file that cannot be used

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._held is None:
            raise self._missing()
        return self._held

    def _explain(self, error: Exception) -> StorageError:
        """Return what to raise for an error of SQLite; let go of the file if it cannot be used any more."""
        return self._take(explain_error(error, self._place, self._busy_ms))

    def check(self) -> None:
        """Let go of a file that was removed, replaced or emptied, which would take writes into nothing."""
        if self._held is None or not self._serves or not isinstance(self._place, Path):
            return
        if identify(self._place) != self._file:
            found = "another file took its place" if self._place.exists() else "it was removed"
            self._let_go(f"{self._place}: {found} while it was open")
            return
        if is_empty(self._place):
            self._let_go(f"{self._place}: it was emptied while it was open")
            return
        with suppress(StorageError):
            (version,) = self.rows("PRAGMA user_version")[0]
            newer = f"{self._place}: changed by a newer foretool (schema {version}); {NEWER_VERSION}"
            self.notice = newer if version > NEWEST else ""

    def reopen(self) -> bool:
        """Try to use the file again, from any thread. Returns whether it can be used; if not, `trouble` says why."""
        if self._held is not None:
            return True
        try:
            if isinstance(self._place, Path) and self._place.exists():
                problems = examine(self._place, _EXAMINING_S).problems
                if problems:
                    raise StorageError(f"{self._place}: damaged ({problems[0]}); move it away, or restore a copy")  # noqa: TRY301
            found = connect(self._place, self._busy_ms, _SERVING_S, writes=True)
        except StorageError as error:
            self.trouble = str(error)
            return False
        self._file = identify(self._place)
        self.trouble, self._held = "", found
        return True

    # Transactions

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Write everything inside the block, or nothing; blocks nest.

        The block takes the write lock at once, so keep it short and never await in it. Let a `StorageError` leave the
        outermost block.
        """
        with self._block(self._begin):
            yield
        if not self._depth:
            self._commits += 1

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self._block("BEGIN"):
            yield

    def settle_writes(self, *tables: str) -> None:
        pass  # one writer at a time

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
            # SQLite itself has already rolled back after some errors (full disk, I/O). A savepoint is gone where its
            # release was interrupted; then the block around it rolls back.
            if self._is_in_transaction():
                with suppress(StorageError) if self._depth > 1 else nullcontext():
                    for statement in undo:
                        self.run(statement)
            raise
        finally:
            self._depth -= 1

    def _settle(self) -> None:
        """Roll back a transaction whose rollback failed: whatever is written in it would be undone with it."""
        if not self._depth and self._is_in_transaction():
            self._execute("ROLLBACK", ())

    def _is_in_transaction(self) -> bool:
        try:
            return self._held is not None and self._held.in_transaction
        except _FAILURES as error:  # it was closed
            raise self._explain(error) from error

    # Statements

    def commit(self, sql: str, values: Sequence[Any]) -> None:
        self._settle()
        self._execute(sql, values)
        self._commits += 1

    def run(self, sql: str, values: Values = ()) -> int:
        self._settle()
        return self._execute(sql, self._clean(values)).rowcount

    def _execute(self, sql: str, values: Values) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, values)
        except UnicodeEncodeError:
            return self._execute(sql, replace_surrogates(values))
        except _FAILURES as error:
            raise self._explain(error) from error

    def run_all(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            # Rows are checked first: when one cannot be written, those before it would already be in.
            rows = [row if all(map(is_writable, row)) else replace_surrogates(row) for row in map(self._clean, rows)]
            self._connection.executemany(sql, rows)
        except _FAILURES as error:
            raise self._explain(error) from error

    def insert(self, sql: str, row: Sequence[Any]) -> int:
        self._settle()
        # Outside a block, one statement is a transaction of its own.
        id = self._execute(sql, self._clean(row)).lastrowid
        if not self._depth:
            self._commits += 1
        return int(id or 0)

    def insert_all(self, sql: str, rows: Sequence[Sequence[Any]]) -> list[int]:
        if not rows:
            return []
        self.run_all(sql, rows)
        # One writer at a time: the ids of a batch follow each other.
        last = self._last_id()
        return list(range(last - len(rows) + 1, last + 1))

    def _last_id(self) -> int:
        # Not the cursor's `lastrowid`, which `executemany` leaves unset.
        return int(self.rows("SELECT last_insert_rowid()")[0][0])

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        self._settle()
        try:
            return self._connection.execute(sql, self._clean(values)).fetchall()
        except _FAILURES as error:
            raise self._explain(error) from error

    def each_row(self, sql: str, values: Values = ()) -> Iterator[tuple[Any, ...]]:
        self._settle()
        try:
            yield from self._connection.execute(sql, self._clean(values))
        except _FAILURES as error:
            raise self._explain(error) from error

    # Where engines differ

    def match_tool(self, column: str, written: str) -> tuple[str, str]:
        if any(mark in written for mark in "*?["):
            return f"{column} GLOB ?", written
        return f"instr(lower({column}), lower(?))", written

    def as_text(self, column: str) -> str:
        return f"CAST({column} AS TEXT)"

    @property
    def json_strings(self) -> str:
        return "SELECT value FROM json_each(?)"

    def size(self) -> int:
        return int(self.rows("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")[0][0])

    def newest_sql(self, table: str) -> str:
        return f"(SELECT coalesce(max(id), 0) FROM {table})"  # noqa: S608  # a constant of `storage.sql`

    def lead(self, work: str) -> FileLead:
        return FileLead(self._place, work)

    def _open_own(self) -> SqliteDatabase | None:
        return SqliteDatabase.open(self._place, _OWN_BUSY_MS) if isinstance(self._place, Path) else None

    # The write-ahead log

    @property
    def is_checkpoint_due(self) -> bool:
        written = self._held.total_changes if self._held is not None else 0
        if self._rows_before is None or self._rows_before > written:
            self._rows_before = written
        return self._commits >= _CHECKPOINT_COMMITS or written - self._rows_before >= _CHECKPOINT_ROWS

    def checkpoint(self) -> int:
        """Move the write-ahead log into the file, from any thread; it neither waits nor blocks a writer.

        Returns the number of pages that had to stay in the log because a reader or a later write still needs them.
        """
        self._commits, self._rows_before = 0, None  # only the thread of the connection may ask it for its count
        if not isinstance(self._place, Path):
            return 0
        try:
            with closing(connect_existing(self._place)) as connection:
                _, in_log, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            self._commits = _CHECKPOINT_COMMITS  # it is still due
            raise explain_error(error, self._place, 0) from error
        return int(in_log - moved)

    def give_back_room(self) -> None:
        """Shrink the file by its free pages, a few at a time; one from before schema 10 cannot shrink."""
        if self.rows("PRAGMA auto_vacuum")[0][0] == 2:  # incremental
            before = None
            while (free := self.rows("PRAGMA freelist_count")[0][0]) and free != before:
                before = free
                self._free_pages()
                time.sleep(_PAUSE_S)
        self._truncate_log()

    def _free_pages(self) -> None:
        """Give back the next `_FREED_PAGES`."""
        try:
            # As a script: `execute` takes one step of this statement, which frees one page.
            self._connection.executescript(f"PRAGMA incremental_vacuum({_FREED_PAGES})")
        except _FAILURES as error:
            raise self._explain(error) from error

    def compact(self) -> bool:
        self._truncate_log()
        # Rewrites the whole file without the room of what was deleted.
        self.run("PRAGMA auto_vacuum = INCREMENTAL")
        self.run("VACUUM")
        return self._truncate_log()

    def _truncate_log(self) -> bool:
        """Move the whole log into the file and empty it. Returns False if another process still uses the log."""
        (busy, *_), *_ = self.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        return not busy
