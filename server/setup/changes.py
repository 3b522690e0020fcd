"""Changes files so that each change can be shown before and undone afterwards, byte for byte.

Before anything is written, every file is copied into a folder of its own, with a list of what was there. Each file is
replaced in one step, so a client never reads half of it.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from foretool.server.config.files import read_regular
from foretool.storage.places import make_private_folder

FOLDER: Final = "backups"
"""The folder beside our config that has the old files."""
LIST: Final = "changes.json"
_UNDONE: Final = "undone.json"
"""The list of changes that were undone: the copies stay."""


class ChangeError(Exception):
    """A file cannot be changed; the message says which, what was found and the way out."""


class FileChange(Struct, frozen=True):
    """What a file holds, and what it is to hold."""

    path: Path
    before: bytes | None
    """None if there is no such file."""
    after: bytes
    why: str = ""
    """What the change does, in words."""
    replaced: int = 0
    """Servers of a client that foretool takes the place of."""
    hooks: str = ""
    """What the hooks of a client do that the same file gets, in words."""

    @property
    def whole_why(self) -> str:
        return ", and ".join(filter(None, (self.why, self.hooks)))


class Protection(Struct, frozen=True):
    """The permissions that a file or folder is to have; what it holds stays."""

    path: Path
    mode: int


class _Kept(Struct):
    path: str
    copy: str | None
    """The file with the old bytes, beside the list; None if there was no file."""
    mode: int
    after: str
    """SHA-256 of what was written; "" if only the permissions changed."""
    written: str | None = None
    """The file with what was written, beside the list."""
    new_mode: int = 0
    """The permissions that were given, where only they changed."""


def write_changes(changes: Sequence[FileChange], backups: Path, protections: Sequence[Protection] = ()) -> Path:
    """Write every file, after copies of all of them, then change the permissions of others; return the folder of the
    copies. Raises `ChangeError`.

    If one file cannot be written, those that were are put back.
    """
    folder = _new_folder(backups)
    kept: list[_Kept] = []
    try:
        for number, change in enumerate(changes):
            if _bytes_of(change.path) != change.before:
                raise ChangeError(f"{change.path}: it has changed in the meantime; run the command again")
            copy = f"{number:03}-{change.path.name}" if change.before is not None else None
            if copy is not None:
                _write(folder / copy, change.before or b"", 0o600)
            written_copy = f"{number:03}-new-{change.path.name}"
            _write(folder / written_copy, change.after, 0o600)
            mode = change.path.stat().st_mode & 0o777 if change.before is not None else 0o600
            kept.append(_Kept(str(change.path), copy, mode, digest(change.after), written_copy))
        for wanted in protections:
            mode = wanted.path.lstat().st_mode & 0o7777
            kept.append(_Kept(str(wanted.path), None, mode, "", new_mode=wanted.mode))
        _write(folder / LIST, msgspec.json.format(msgspec.json.encode(kept)), 0o600)
        written: list[FileChange] = []
        for change, each in zip(changes, kept, strict=False):
            try:
                make_private_folder(change.path.parent)
                _write(change.path, change.after, each.mode)
            except OSError as error:
                _put_back(written, kept)
                raise ChangeError(f"{change.path}: cannot be written ({error.strerror}); nothing was changed") from None
            written.append(change)
        for wanted in protections:
            wanted.path.chmod(wanted.mode)
    except OSError as error:
        raise ChangeError(f"{error.filename or folder}: {error.strerror}; nothing was changed") from None
    return folder


def undo(backups: Path) -> tuple[list[Path], list[str]]:
    """Put back what the latest run changed; return the files, and a line for each that was left alone.

    Raises `ChangeError` if there is nothing to undo.
    """
    folder = next((each for each in sorted(backups.glob("*"), reverse=True) if (each / LIST).is_file()), None)
    if folder is None:
        raise ChangeError(f"{backups}: there is nothing to undo")
    try:
        kept = msgspec.json.decode((folder / LIST).read_bytes(), type=list[_Kept])
    except (OSError, msgspec.MsgspecError) as error:
        raise ChangeError(f"{folder / LIST}: cannot be read ({error}); copy the files back by hand") from None
    restored: list[Path] = []
    problems: list[str] = []
    # Permissions first: a file that was changed too gets back both what it held and its permissions.
    for each in sorted(kept, key=lambda each: not each.new_mode):
        path = Path(each.path)
        if each.new_mode:
            _reopen(path, each, restored, problems)
            continue
        try:
            now = _bytes_of(path)
        except OSError as error:
            problems.append(f"{path}: cannot be read ({error.strerror}), so it stays as it is")
            continue
        if now is None or digest(now) != each.after:
            copy = f"; its old text is {folder / each.copy}" if each.copy else ""
            problems.append(f"{path}: it has changed since, so it stays as it is{copy}")
            continue
        try:
            if each.copy is None:
                path.unlink()
            else:
                _write(path, (folder / each.copy).read_bytes(), each.mode)
        except OSError as error:
            problems.append(f"{path}: cannot be put back ({error.strerror})")
            continue
        restored.append(path)
    (folder / LIST).rename(folder / _UNDONE)
    return restored, problems


def _reopen(path: Path, kept: _Kept, restored: list[Path], problems: list[str]) -> None:
    """Give a file the permissions that it had, unless somebody has changed them since."""
    try:
        if path.lstat().st_mode & 0o7777 != kept.new_mode:
            problems.append(f"{path}: its permissions have changed since, so they stay as they are")
            return
        path.chmod(kept.mode)
    except OSError as error:
        problems.append(f"{path}: cannot be put back ({error.strerror})")
        return
    restored.append(path)


class Earlier(Struct, frozen=True):
    """What a run has changed in a file."""

    before: bytes
    after: str
    """The digest of what it wrote."""
    written: bytes | None
    """What it wrote, None if that was not kept."""


def earlier_versions(path: Path, backups: Path) -> list[Earlier]:
    """Return what each run has changed in a file, the newest first.

    Runs that were undone, that made the file, and copies that cannot be read, are left out.
    """
    found = []
    for folder in sorted(backups.glob("*"), reverse=True):
        try:
            kept = msgspec.json.decode((folder / LIST).read_bytes(), type=list[_Kept])
            for each in kept:
                if each.path == str(path) and each.copy is not None:
                    written = (folder / each.written).read_bytes() if each.written else None
                    found.append(Earlier((folder / each.copy).read_bytes(), each.after, written))
        except (OSError, msgspec.MsgspecError):
            continue
    return found


def merge_texts(base: str, one: str, other: str) -> str | None:
    """Return a text with the lines that two others changed in a base; None if they changed the same lines, or lines
    next to each other."""
    lines, regions = base.splitlines(keepends=True), []
    for text in (one, other):
        changed = text.splitlines(keepends=True)
        matcher = difflib.SequenceMatcher(None, lines, changed, autojunk=False)
        regions += [(i, j, changed[k:m]) for tag, i, j, k, m in matcher.get_opcodes() if tag != "equal"]
    merged: list[str] = []
    at = -1
    for start, end, new in sorted(regions):
        if start <= at:
            return None
        merged += [*lines[max(at, 0) : start], *new]
        at = end
    return "".join([*merged, *lines[max(at, 0) :]])


def digest(data: bytes) -> str:
    """Return the SHA-256 of what a file holds, as the list of changes has it."""
    return sha256(data).hexdigest()


def difference(change: FileChange) -> list[str]:
    """Return the lines of a unified diff. They hold whatever the file holds, secrets too."""
    before, after = ((each or b"").decode("utf-8", "replace").splitlines() for each in (change.before, change.after))
    return list(difflib.unified_diff(before, after, "before", "after", n=2, lineterm=""))


def _new_folder(backups: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        folder = backups / f"{stamp}-{number:03}"
        try:
            make_private_folder(backups)
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise ChangeError(f"{folder}: cannot be made ({error.strerror}); nothing was changed") from None
        return folder
    raise ChangeError(f"{backups}: too many folders of one second; try again")


def _bytes_of(path: Path) -> bytes | None:
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None


def _write(path: Path, data: bytes, mode: int) -> None:
    """Replace a file in one step; a link stays a link to the file that is replaced."""
    target = path.resolve()
    beside = target.with_name(f".{target.name}.foretool-{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.chmod(mode)
        beside.replace(target)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _put_back(written: Sequence[FileChange], kept: Sequence[_Kept]) -> None:
    for change, each in zip(written, kept, strict=False):
        if change.before is None:
            change.path.unlink(missing_ok=True)
        else:
            _write(change.path, change.before, each.mode)
