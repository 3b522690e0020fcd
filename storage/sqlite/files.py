"""The files of the store: who may read them, and whether they are still the ones that were opened.

The log (`-wal`) and its index (`-shm`) stand beside the file and hold the same records, so they get the same
permissions. SQLite gives new ones the permissions of the file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from foretool.storage.engine import StorageError
from foretool.storage.places import make_private_folder

_OWN_FOLDER: Final = "foretool"
"""Name of the folder that foretool makes for its files; only this one is closed to others. A folder with another name
may be somebody's project."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def require_regular(path: Path) -> None:
    """Raise `StorageError` for a folder, a pipe or a device: SQLite would wait for ever for what a pipe never sends."""
    if path.exists() and not path.is_file():
        raise StorageError(f"{path}: not a regular file; move it away, or set another storage path", lost=True)


def create_private(path: Path) -> None:
    """Create the folder (0700) and the file (0600) if they are missing, and close existing ones of ours to others."""
    make_private_folder(path.parent)
    require_regular(path)
    # Only a new file is opened here: closing a descriptor drops the locks this process holds on it through SQLite.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    for each, mode in _private_modes(path):
        with suppress(OSError):
            status = each.stat()
            # A link leads to somebody's file, which was made for another purpose.
            if status.st_mode & _OTHERS and status.st_uid == os.geteuid() and not each.is_symlink():
                each.chmod(mode)


def identify(path: Path | str) -> tuple[int, int] | None:
    """Return what tells the file at a path from another one that takes its place; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 -- the path may be ":memory:"
    except OSError:
        return None
    return status.st_dev, status.st_ino


def is_empty(path: Path, *, or_missing: bool = False) -> bool:
    """Return whether a file has no content, which one that was opened always has."""
    try:
        return path.stat().st_size == 0
    except FileNotFoundError:
        return or_missing
    except OSError:
        return False


def find_exposure(path: Path) -> tuple[str, ...]:
    """Return one line for each way in which another user of the machine could read or change the store."""
    return tuple(_find_exposure(path))


def find_open_files(path: Path) -> tuple[tuple[Path, int], ...]:
    """Return the files and folders of a store that belong to this user and others may reach, with the permissions that
    they should have."""
    found = []
    for each, mode in _private_modes(path):
        with suppress(OSError):
            status = each.lstat()
            if status.st_mode & _OTHERS and status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode):
                found.append((each, mode))
    return tuple(found)


def _find_exposure(path: Path) -> Iterator[str]:
    for each, mode in _private_modes(path):
        with suppress(OSError):
            status = each.stat()
            if status.st_uid not in (os.geteuid(), 0):
                yield f"{each}: it belongs to another user (id {status.st_uid}); set another storage path"
            elif status.st_mode & _OTHERS:
                found = stat.S_IMODE(status.st_mode)
                yield f"{each}: other users may reach it (mode {found:04o}); run: chmod {mode:o} {each}"
    with suppress(OSError):
        status = path.parent.stat()
        if status.st_mode & _WRITE and path.parent.name != _OWN_FOLDER:
            yield (
                f"{path.parent}: other users may replace the storage file in this folder"
                f" (mode {stat.S_IMODE(status.st_mode):04o}); run: chmod go-w {path.parent}, or move the store"
            )
    with suppress(OSError):
        if path.is_symlink() and path.lstat().st_uid not in (os.geteuid(), 0):
            yield f"{path}: a link that another user made; set another storage path"


def _private_modes(path: Path) -> Iterator[tuple[Path, int]]:
    yield from ((path.with_name(path.name + suffix), 0o600) for suffix in ("", "-wal", "-shm"))
    if path.parent.name == _OWN_FOLDER:
        yield path.parent, 0o700
