"""A storage whose statements can be made to fail one by one, whichever connection or thread runs them."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import pytest

ROLLS_BACK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT)
"""After these SQLite has rolled back by itself."""
WORDS = {
    sqlite3.SQLITE_BUSY: "database is locked",
    sqlite3.SQLITE_FULL: "database or disk is full",
    sqlite3.SQLITE_IOERR: "disk I/O error",
    sqlite3.SQLITE_NOTADB: "file is not a database",
    sqlite3.SQLITE_CORRUPT: "database disk image is malformed",
    sqlite3.SQLITE_CANTOPEN: "unable to open database file",
    sqlite3.SQLITE_READONLY: "attempt to write a readonly database",
    sqlite3.SQLITE_PROTOCOL: "locking protocol",
}


class Place(NamedTuple):
    """One call of a storage: what it runs, and how often that was run before, counted from 1."""

    what: str
    number: int


class Faults:
    """Counts the calls of a storage; from the one that is `armed` on each fails until `mend`, or that one alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.disarm()

    def disarm(self) -> None:
        self.counts: Counter[str] = Counter()
        """By what was called: how often."""
        self.has_failed = False
        self._place: Place | None = None
        self._code = 0
        self._is_once = self._is_failing = self._is_paused = False

    def arm(self, place: Place | None, code: int, *, once: bool) -> None:
        """`once`: the calls after it work again."""
        self.disarm()
        self._place, self._code, self._is_once = place, code, once

    def mend(self) -> None:
        self._place, self._is_failing = None, False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Neither count nor fail what the test itself does."""
        self._is_paused = True
        yield
        self._is_paused = False

    def check(self, what: str) -> int:
        """Count a call; return the code with which it fails, or 0."""
        with self._lock:
            if self._is_paused:
                return 0
            self.counts[what] += 1
            is_first = self._place == (what, self.counts[what])
            self.has_failed |= is_first
            self._is_failing |= is_first and not self._is_once
            return self._code if is_first or self._is_failing else 0


def error_of(code: int) -> sqlite3.Error:
    """Return the error of SQLite for a result code."""
    kind = (
        sqlite3.DatabaseError if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT) else sqlite3.OperationalError
    )
    error = kind(WORDS[code])
    error.sqlite_errorcode = code
    return error


class FailingCursor(sqlite3.Cursor):
    """A cursor that asks `faults` before it gives rows."""

    connection: FailingConnection
    sql = ""
    has_begun = False

    def fetchall(self) -> list[Any]:
        self._check("rows of")
        return super().fetchall()

    def __next__(self) -> Any:
        if not self.has_begun:
            self.has_begun = True
            self._check("each row of")
        return super().__next__()

    def _check(self, what: str) -> None:
        try:
            self.connection.check(f"{what} {self.sql}")
        except sqlite3.Error:
            self.close()  # SQLite resets a statement that has failed
            raise


class FailingConnection(sqlite3.Connection):
    """A connection that asks `faults` before each statement."""

    faults: Faults

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return self._open(sql).execute(sql, *parameters)

    def executemany(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return self._open(sql).executemany(sql, *parameters)

    def executescript(self, sql: str) -> sqlite3.Cursor:
        return self._open(sql).executescript(sql)

    def _open(self, sql: str) -> FailingCursor:
        cursor: FailingCursor = self.cursor(FailingCursor)
        cursor.sql = " ".join(sql.split())
        self.check(cursor.sql)
        return cursor

    def check(self, what: str) -> None:
        if code := self.faults.check(what):
            if code in ROLLS_BACK and self.in_transaction:
                self.rollback()
            raise error_of(code)

    def __del__(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # of another thread
            self.close()


def fail_sqlite(faults: Faults, patch: pytest.MonkeyPatch) -> None:
    """Let every connection that is opened from now on ask `faults` before each call."""
    connect = sqlite3.connect
    factory = type("Connection", (FailingConnection,), {"faults": faults})

    def connect_failing(*arguments: Any, **options: Any) -> sqlite3.Connection:
        if code := faults.check("connect"):
            raise error_of(code)
        return connect(*arguments, **{**options, "factory": factory})

    patch.setattr(sqlite3, "connect", connect_failing)


LOST, LOST_AFTER, FULL, LOCKED = range(1, 5)
"""What befalls a statement of PostgreSQL: the connection is lost before it or after it, the disk is full, a lock is not
had in time."""


def fail_postgres(faults: Faults, patch: pytest.MonkeyPatch) -> None:
    """Let every connection to PostgreSQL ask `faults` whenever it waits for the server."""
    import psycopg
    from psycopg import pq

    wait, connect = psycopg.Connection.wait, psycopg.Connection.connect

    def wait_failing(self: Any, gen: Any, *arguments: Any, **options: Any) -> Any:
        code = faults.check("statement")
        if code == LOST_AFTER:
            wait(self, gen, *arguments, **options)
        if code in (LOST, LOST_AFTER) or (code and self.pgconn.pipeline_status != pq.PipelineStatus.OFF):
            self.pgconn.finish()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        if code:
            self.pgconn.exec_(b"SELECT 1 / 0")  # an error ends the transaction
            raise psycopg.errors.DiskFull("no space") if code == FULL else psycopg.errors.LockNotAvailable("locked")
        return wait(self, gen, *arguments, **options)

    def connect_failing(cls: Any, *arguments: Any, **options: Any) -> Any:
        if faults.check("connect"):
            raise psycopg.OperationalError("connection refused")
        return connect.__func__(cls, *arguments, **options)  # type: ignore[attr-defined]

    patch.setattr(psycopg.Connection, "wait", wait_failing)
    patch.setattr(psycopg.Connection, "connect", classmethod(connect_failing))
