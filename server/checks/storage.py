"""Checks the storage file or the database: whether it can be made, read and written, and who else could read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from foretool.server.config.codes import Code
from foretool.server.diagnosis import Finding, Repair, ok, problem, warning
from foretool.server.recording.notes import ProxyJob
from foretool.server.recording.store_watch import ELSEWHERE, find_full_disk, find_trouble
from foretool.server.setup.installation import fit_hint
from foretool.storage.engine import NEWER_VERSION, StorageError
from foretool.storage.opening import examine_store, exposure, open_files, require_place
from foretool.storage.places import ServerAddress, StorePlace

CHECK_S: Final = 5.0
"""How long the check of the storage file may take."""


def say_refused(error: str) -> Finding:
    """Return the finding that the storage did not take what was to be kept, from the words of a `StorageError`."""
    what, _, do = fit_hint(error).rpartition("; ")
    return problem("storage", Code.STORAGE_UNUSABLE, what or do, do if what else ELSEWHERE)


def check_storage(place: StorePlace) -> Iterator[Finding]:
    """Check the storage file or the database of a config."""
    yield from _check_server(place) if isinstance(place, ServerAddress) else _check_file(place)


def _check_server(address: ServerAddress) -> Iterator[Finding]:
    try:
        health = examine_store(address, CHECK_S)
    except StorageError as error:
        yield say_refused(str(error))
        return
    if health.is_foreign:
        what = f"{address}: the schema has tables of another program"
        yield problem("storage", Code.STORAGE_FOREIGN, what, "name another schema: options=-csearch_path%3Dforetool")
    elif health.version > health.newest:
        what = f"{address}: schema {health.version}, written by a newer foretool (this one knows {health.newest})"
        yield problem("storage", Code.STORAGE_NEWER, what, "upgrade foretool, or name another database")
    elif 0 < health.version < health.oldest:
        what = f"{address}: schema {health.version}, written before the first release"
        do = "stop foretool, keep the old tables with ALTER SCHEMA foretool RENAME TO foretool_old, and start it again"
        yield problem("storage", Code.STORAGE_OLDER, what, do)
    if not health.is_writable:
        do = "name the address of the primary server, or let the database be written"
        yield problem("storage", Code.STORAGE_READ_ONLY, f"{address}: the database is read-only", do)
    for found in health.problems:
        what, _, do = found.partition("; ")
        yield problem("storage", Code.STORAGE_UNUSABLE, f"{address}: {what}", do)
    yield from _check_notes(address)
    if not health.problems and health.is_writable and not health.is_foreign:
        tables = f"schema {health.version}" if health.version else "no tables yet; the first proxy creates them"
        yield ok("storage", f"{address}: {health.engine}, {tables}")


def _check_file(path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield _check_place(path)
        yield from _check_exposure(path)
        return
    try:
        health = examine_store(path, CHECK_S)
    except StorageError as error:
        what, do = find_full_disk(path)
        yield problem("storage", Code.STORAGE_UNUSABLE, what, do) if what else say_refused(str(error))
        return
    if health.is_foreign:
        yield problem("storage", Code.STORAGE_FOREIGN, f"{path}: was made by another program", ELSEWHERE)
    elif health.version > health.newest:
        what = f"{path}: schema {health.version}, written by a newer foretool (this one knows {health.newest})"
        yield problem("storage", Code.STORAGE_NEWER, what, "upgrade foretool, or set another storage path")
    elif 0 < health.version < health.oldest:
        what = f"{path}: schema {health.version}, written before the first release"
        do = f"stop foretool, move the file aside (mv {path} {path}.old), and start it again"
        yield problem("storage", Code.STORAGE_OLDER, what, do)
    if not health.is_writable:
        do = "check the permissions of the file and its directory"
        yield problem("storage", Code.STORAGE_READ_ONLY, f"{path}: cannot be written", do)
    yield from _check_notes(path)
    yield from _check_exposure(path)
    for damage in health.problems:
        do = "stop the proxies and move the file away; a new one is created, without the log"
        yield problem("storage", Code.STORAGE_DAMAGED, f"{path}: damaged: {damage}", do)
    what, do = find_full_disk(path)
    if what:
        yield problem("storage", Code.STORAGE_UNUSABLE, what, do)
    elif not health.problems:
        checked = "checked" if health.is_complete else f"no damage within {CHECK_S:g} s of checking"
        yield ok("storage", f"{path}: schema {health.version}, {checked}")


def _check_notes(place: StorePlace) -> Iterator[Finding]:
    mend = "make the server reachable" if isinstance(place, ServerAddress) else "mend the file"
    for found in find_trouble(place):
        what = f"{place}: proxy {found.pid} serves {'an older version' if found.is_writing else 'without it'}:"
        is_old = NEWER_VERSION in found.trouble or "by a newer foretool" in found.trouble
        do = NEWER_VERSION if is_old else f"{mend}; the proxy then uses it again by itself"
        yield warning("storage", Code.STORAGE_NOT_USED, f"{what} {found.trouble}", do)


def check_jobs(failing: Sequence[ProxyJob]) -> Iterator[Finding]:
    """Report the background jobs that fail in running proxies."""
    for each in failing:
        what = f"proxy {each.pid}: background job {each.job!r} fails: {each.error}"
        yield warning("environment", each.code, what, "it is tried again by itself; the log of the proxy says more")


def _check_exposure(path: Path) -> Iterator[Finding]:
    closable = {f"{each}: other users": (each, mode) for each, mode in open_files(path)}
    for line in exposure(path):
        what, _, do = line.partition("; ")
        at = next((found for begun, found in closable.items() if what.startswith(begun)), None)
        repair = Repair("protect", path=str(at[0]), mode=at[1]) if at else None
        yield warning("storage", Code.STORAGE_EXPOSED, what, do, repair=repair)


def _check_place(path: Path) -> Finding:
    """Check whether a new file can be created at this path."""
    try:
        require_place(path)
    except StorageError as error:
        return say_refused(str(error))
    what, do = find_full_disk(path)
    if what:
        return problem("storage", Code.STORAGE_UNUSABLE, what, do)
    return ok("storage", f"{path}: does not exist yet, and can be created")
