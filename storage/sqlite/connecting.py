"""Opens connections to the SQLite file, which is created and migrated where needed."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from foretool.storage.sqlite.errors import Location, explain_error, result_code
from foretool.storage.sqlite.files import create_private
from foretool.storage.sqlite.migrations import MIGRATIONS, is_foreign, migrate, schema_version
from foretool.storage.stores import StorageError

_BACKSTOP_PAGES = 4096
"""Pages of 4 KiB in the log at which SQLite checkpoints by itself, inside a commit: 16 MiB."""


def connect(path: Location, busy_ms: int, patience_s: float, *, writes: bool = False) -> sqlite3.Connection:
    """Open the file; create and migrate it if needed. `writes`: fail if it cannot be written. Raises `StorageError`."""
    try:
        if isinstance(path, Path):
            create_private(path)
        # A file that comes back is opened in a thread, and used by the thread of the loop from then on. A database in
        # memory has one connection for all threads.
        is_shared = writes or not isinstance(path, Path)
        connection = sqlite3.connect(path, timeout=patience_s, isolation_level=None, check_same_thread=not is_shared)
        try:
            _prepare(connection, path, patience_s)
            if writes:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
            connection.execute(f"PRAGMA busy_timeout = {int(busy_ms)}")
        except BaseException:
            connection.close()
            raise
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}; check the storage path and its permissions") from error
    except sqlite3.Error as error:
        raise explain_error(error, path, int(patience_s * 1000)) from error
    return connection


def connect_existing(path: Path) -> sqlite3.Connection:
    """Open a file that exists, without creating it, waiting or looking into it."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None)


def _prepare(connection: sqlite3.Connection, path: Location, patience_s: float) -> None:
    found = schema_version(connection)
    if is_foreign(connection):
        raise StorageError(f"{path}: made by another program (schema {found}); set another storage path")
    if found > len(MIGRATIONS):
        raise StorageError(
            f"{path}: written by a newer foretool (schema {found}, this one knows {len(MIGRATIONS)});"
            " upgrade foretool, or set another storage path"
        )
    connection.execute("PRAGMA synchronous = NORMAL")
    # What is deleted is overwritten.
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_BACKSTOP_PAGES}")
    if found < len(MIGRATIONS):
        if not found:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only a new file takes this
        _use_write_ahead_log(connection, patience_s)
        migrate(connection)
    # After the migrations, which may rebuild a table that others reference.
    connection.execute("PRAGMA foreign_keys = ON")


def _use_write_ahead_log(connection: sqlite3.Connection, patience_s: float) -> None:
    """Switch the file to a write-ahead log, which it remembers; retry here, since SQLite does not wait for this."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if result_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return
