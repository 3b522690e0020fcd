"""Copies a storage file as it is at one moment, also while proxies write to it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from foretool.storage.sqlite.files import require_regular
from foretool.storage.stores import StorageError


def copy_file(path: Path, target: Path) -> None:
    """Write a copy that only its owner can read, with the log in it; `target` must not exist. Raises `StorageError`."""
    require_regular(path)
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        source = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        with closing(source), closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
            # A reader of the copy makes no files beside it.
            copy.execute("PRAGMA journal_mode = DELETE")
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"{path}: cannot be copied to {target} ({error}); make room there") from error
