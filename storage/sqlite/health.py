"""Examines a storage file without changing it."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from foretool.storage.records import Health
from foretool.storage.sqlite.errors import explain_error, is_full
from foretool.storage.sqlite.files import require_regular
from foretool.storage.sqlite.migrations import MIGRATIONS, is_foreign, schema_version
from foretool.storage.stores import StorageError

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
    return Health(version, len(MIGRATIONS), foreign, writable, problems, is_complete)


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
