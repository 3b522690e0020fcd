"""Turns SQLite's errors into `StorageError`, which says what was found and what to do about it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from shutil import disk_usage

from foretool.storage.stores import StorageError

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
    """Tell whether the disk of a file takes nothing more. SQLite calls it an I/O error where it cannot make `-shm`."""
    try:
        return disk_usage(Path(path).parent).free < _LEAST_FREE
    except OSError:
        return False


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
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            message = f"{path}: {error}; check that this user may read and write the file and its directory"
            return StorageError(message, lost=True)
        case sqlite3.SQLITE_ERROR | sqlite3.SQLITE_SCHEMA if any(sign in str(error) for sign in _OTHER_SCHEMA):
            message = f"changed by another version of foretool ({error}); restart this proxy with the newer version"
            return StorageError(f"{path}: {message}", lost=True)
        case _:
            return StorageError(f"{path}: {error}; nothing was written")
