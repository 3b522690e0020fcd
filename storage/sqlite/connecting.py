"""Opens connections to the SQLite file, which is created and migrated where needed.

SQLite's errors become `StorageError`, which says what was found and what to do about it. `examine` looks at a storage
file without changing it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from shutil import disk_usage

from foretool.storage.engine import NEWER_VERSION, StorageError
from foretool.storage.records import Health
from foretool.storage.sqlite.files import create_private, is_empty, require_regular
from foretool.storage.sqlite.migrations import BASE, NEWEST, is_foreign, migrate, schema_version

Location = Path | str

_LEAST_FREE = 1 << 16
"""Bytes; a new `-shm` takes 32 KiB."""
_OF_THE_MOMENT = (
    sqlite3.SQLITE_IOERR, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_ABORT,
    sqlite3.SQLITE_INTERNAL, sqlite3.SQLITE_NOMEM,
)  # fmt: skip
"""Not the fault of what is written: the same statement may succeed later."""
_OTHER_SCHEMA = ("no such table", "no such column", "has no column", "schema has changed")


def result_code(error: Exception) -> int:
    """Return SQLite's primary result code, or 0."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_full(path: Location) -> bool:
    """Return whether the disk of a file takes nothing more. SQLite calls it an I/O error where it cannot make
    `-shm`."""
    try:
        disk = disk_usage(Path(path).parent)
    except OSError:
        return False
    return disk.total > 0 and disk.free < _LEAST_FREE  # /proc has no room at all, and is not full


def require_place(path: Path) -> None:
    """Raise `StorageError` if a file that is not there yet cannot be created: a folder is made there and removed again.
    Permissions alone say too little: a disk may be read-only, and /proc takes no files from anybody."""
    import tempfile  # takes 2 ms, which a proxy whose file is there does not need

    nearest = next(parent for parent in path.parents if parent.exists())
    try:
        os.rmdir(tempfile.mkdtemp(dir=nearest, prefix=".foretool-"))  # noqa: PTH106  # the same, without a second object
    except OSError as error:
        if error.errno == errno.EROFS:
            raise _say_read_only(path) from None
        if error.errno == errno.ENOSPC:
            return  # it is full, which whoever writes says
        message = f'cannot be created in {nearest} ({error.strerror}); set "storage" to a place that can be written'
        raise StorageError(f"{path}: {message}", lost=True) from None


def is_read_only(path: Location) -> bool:
    """Return whether the file system of a file is mounted read-only: no permission would help then."""
    try:
        return bool(os.statvfs(Path(path).parent).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _say_read_only(path: Location) -> StorageError:
    message = f'{path}: its file system is read-only; set "storage" to a place that can be written'
    return StorageError(message, lost=True)


def explain_error(error: Exception, path: Location, busy_ms: int) -> StorageError:
    """Return the `StorageError` that says what SQLite found and what to do about it."""
    match result_code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            message = f"locked by another process for more than {busy_ms} ms; nothing was written, try again"
            return StorageError(f"{path}: {message}", temporary=True)
        case code if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and is_full(path)):
            return StorageError(f"{path}: disk full; nothing was written, free some space", temporary=True)
        case code if code in _OF_THE_MOMENT or isinstance(error, MemoryError):
            return StorageError(f"{path}: {error}; nothing was written, try again", temporary=True)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            message = (
                f"not a readable SQLite file ({error}); the file was not changed:"
                " move it away to start with an empty one, or restore a copy"
            )
            return StorageError(f"{path}: {message}", lost=True)
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM if is_read_only(path):
            return _say_read_only(path)
        case sqlite3.SQLITE_READONLY if is_full(path):  # opened by `connect_unwritable`
            return StorageError(f"{path}: disk full; nothing was written, free some space", temporary=True)
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            message = f"{path}: {error}; check that this user may read and write the file and its directory"
            return StorageError(message, lost=True)
        case sqlite3.SQLITE_ERROR | sqlite3.SQLITE_SCHEMA if any(sign in str(error) for sign in _OTHER_SCHEMA):
            message = f"changed by another version of foretool ({error}); {NEWER_VERSION}"
            return StorageError(f"{path}: {message}", lost=True)
        case _:
            return StorageError(f"{path}: {error}; nothing was written")


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
        if error.errno == errno.EROFS:
            raise _say_read_only(path) from error
        raise StorageError(f"{path}: {error.strerror}; check the storage path and its permissions") from error
    except sqlite3.Error as error:
        raise explain_error(error, path, int(patience_s * 1000)) from error
    return connection


def connect_unwritable(path: Path) -> sqlite3.Connection | None:
    """Open a file that cannot be written, as on a full disk, for reading; None where it can be written or not be read.

    SQLite reads a file with a write-ahead log only where it can write beside it, unless it is told that nobody changes
    the file. So a log that is left there must be empty: what is in it would be missing.
    """
    is_stuck = is_full(path) or is_read_only(path) or not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
    if not is_stuck or not is_empty(path.with_name(f"{path.name}-wal"), or_missing=True):
        return None
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True, isolation_level=None)
        if schema_version(connection) == NEWEST and not is_foreign(connection):
            return connection
        connection.close()
    except sqlite3.Error:
        pass  # why it cannot be used is known already
    return None


def connect_existing(path: Path) -> sqlite3.Connection:
    """Open a file that exists, without creating it, waiting or looking into it."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None)


def _prepare(connection: sqlite3.Connection, path: Location, patience_s: float) -> None:
    found = schema_version(connection)
    if is_foreign(connection):
        raise StorageError(f"{path}: made by another program (schema {found}); set another storage path")
    if found > NEWEST:
        raise StorageError(
            f"{path}: written by a newer foretool (schema {found}, this one knows {NEWEST});"
            " upgrade foretool, or set another storage path"
        )
    if 0 < found < BASE:
        raise StorageError(
            f"{path}: written before the first release (schema {found}, the first is {BASE}); stop foretool, move the"
            f" file aside (mv {path} {path}.old), and start it again"
        )
    connection.execute("PRAGMA synchronous = NORMAL")
    # What is deleted is overwritten.
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_BACKSTOP_PAGES}")
    if found < NEWEST:
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


_MOST_PROBLEMS = 5
_CHECK_STEPS = 10_000
"""SQLite instructions of a check between two looks at the clock: under a millisecond."""


def examine(path: Path, patience_s: float) -> Health:
    """Check a file for at most `patience_s`, without changing it; raises `StorageError` if it cannot be read at all."""
    require_regular(path)
    end = time.monotonic() + patience_s
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        ) as database:
            version, foreign = schema_version(database), is_foreign(database)
            database.set_progress_handler(lambda: time.monotonic() > end, _CHECK_STEPS)
            problems, is_complete = _quick_check(database)
    except sqlite3.Error as error:
        # In the words of `explain_error`, so that a proxy which meets both says it once.
        if (explained := explain_error(error, path, 0)).lost or is_full(path):
            raise explained from error
        raise StorageError(
            f"{path}: cannot be read ({error}); check its permissions, or move it away to start with an empty one"
        ) from error
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return Health(version, BASE, NEWEST, foreign, writable, problems, is_complete)


def _quick_check(database: sqlite3.Connection) -> tuple[tuple[str, ...], bool]:
    try:
        found = database.execute(f"PRAGMA quick_check({_MOST_PROBLEMS})").fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return (), False
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_CORRUPT:
            raise
        return (str(error),), True
    return tuple(line for (text,) in found for line in text.splitlines() if text != "ok"), True
