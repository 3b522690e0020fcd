"""Checks the storage file: whether it can be made, read and written, and who else could read it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from foretool.server.config.codes import Code
from foretool.server.diagnosis import Finding, Repair, note, ok, problem, warning
from foretool.server.recording.store_watch import read_notes
from foretool.storage.opening import examine_store, exposure, open_files
from foretool.storage.stores import StorageError

CHECK_S: Final = 5.0
"""How long the check of the storage file may take."""
_ELSEWHERE: Final = 'set another path: "storage" in the foretool block of the config'


def check_storage(path: Path) -> Iterator[Finding]:
    """Check the storage file of a config."""
    if not path.exists():
        yield _check_place(path)
        yield from _check_exposure(path)
        return
    try:
        health = examine_store(path, CHECK_S)
    except StorageError as error:
        yield problem("storage", Code.STORAGE_UNUSABLE, str(error), _ELSEWHERE)
        return
    if health.is_foreign:
        yield problem("storage", Code.STORAGE_FOREIGN, f"{path}: was made by another program", _ELSEWHERE)
    elif health.version > health.newest:
        what = f"{path}: schema {health.version}, written by a newer foretool (this one knows {health.newest})"
        yield problem("storage", Code.STORAGE_NEWER, what, "upgrade foretool, or set another storage path")
    elif health.version < health.newest:
        what = f"{path}: schema {health.version}; the next proxy migrates it to {health.newest}"
        yield note("storage", Code.STORAGE_OLDER, what)
    if not health.is_writable:
        do = "check the permissions of the file and its directory"
        yield problem("storage", Code.STORAGE_READ_ONLY, f"{path}: cannot be written", do)
    for found in read_notes(path):
        what = f"{path}: proxy {found.pid} serves without it: {found.trouble}"
        yield warning("storage", Code.STORAGE_NOT_USED, what, "mend the file; the proxy then uses it again by itself")
    yield from _check_exposure(path)
    for damage in health.problems:
        do = "stop the proxies and move the file away; a new one is created, without the log"
        yield problem("storage", Code.STORAGE_DAMAGED, f"{path}: damaged: {damage}", do)
    if not health.problems:
        checked = "checked" if health.is_complete else f"no damage within {CHECK_S:g} s of checking"
        yield ok("storage", f"{path}: schema {health.version}, {checked}")


def _check_exposure(path: Path) -> Iterator[Finding]:
    closable = {f"{each}: other users": (each, mode) for each, mode in open_files(path)}
    for line in exposure(path):
        what, _, do = line.partition("; ")
        at = next((found for begun, found in closable.items() if what.startswith(begun)), None)
        repair = Repair("protect", path=str(at[0]), mode=at[1]) if at else None
        yield warning("storage", Code.STORAGE_EXPOSED, what, do, repair=repair)


def _check_place(path: Path) -> Finding:
    """Check whether a new file can be created at this path, by making a folder there and removing it."""
    nearest = next(parent for parent in path.parents if parent.exists())
    try:
        # Permissions alone say too little: a disk may be read-only, and /proc takes no files from anybody.
        os.rmdir(tempfile.mkdtemp(dir=nearest, prefix=".foretool-"))  # noqa: PTH106  # the same, without a second object
    except OSError as error:
        what = f"{path}: cannot be created in {nearest} ({error.strerror})"
        return problem("storage", Code.STORAGE_UNUSABLE, what, _ELSEWHERE)
    return ok("storage", f"{path}: does not exist yet; the first proxy creates it")
