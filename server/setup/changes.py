"""Changes files so that each change can be shown before and undone afterwards, byte for byte.

Before anything is written, every file is copied into a folder of its own, with a list of what was there. Each file is
replaced in one step, so a client never reads half of it. All files of a run are one step too: Ctrl-C waits for its end,
and a run that fails leaves nothing.
"""

from __future__ import annotations

import difflib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from foretool.server.config.errors import Refusal
from foretool.server.config.files import read_regular
from foretool.server.system.interrupts import Interrupted, hold_signals
from foretool.storage.places import make_private_folder

FOLDER: Final = "backups"
"""The folder beside our config that has the old files."""
LIST: Final = "changes.json"
UNINSTALL: Final = "uninstall"
"""What the list of changes calls a run of `foretool uninstall`, which no --undo takes back."""
_STAMP: Final = "%Y%m%d-%H%M%S"
_UNDONE: Final = "undone.json"
"""The list of changes that were undone: the copies stay."""


class ChangeError(Refusal):
    """A file cannot be changed."""


class NothingToUndoError(ChangeError):
    """No run is left to undo."""


class EditedError(ValueError):
    """A file was edited so that what a run changed cannot be taken out; it stays, and a second try finds the same."""


class FileChange(Struct, frozen=True):
    """A change of one file: its content before and after."""

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
    is_gone: bool = False
    """The file is to be deleted; `after` is empty then."""
    folders: tuple[Path, ...] = ()
    """Folders that go with a deleted file if nothing else is in them, the innermost first."""

    @property
    def whole_why(self) -> str:
        return ", and ".join(filter(None, (self.why, self.hooks)))


class Protection(Struct, frozen=True):
    """The permissions that a file or folder is to get; its content stays."""

    path: Path
    mode: int


class _Kept(Struct, omit_defaults=True):
    path: str
    copy: str | None
    """The file with the old bytes, beside the list; None if there was no file."""
    mode: int
    after: str
    """SHA-256 of what was written; "" if only the permissions changed, or if the file was deleted."""
    written: str | None = None
    """The file with what was written, beside the list."""
    new_mode: int = 0
    """The permissions that were given, where only they changed."""
    what: str = ""
    """What the run did, in words."""
    made: list[str] = []
    """The folders that were made for the file, the innermost first."""
    is_gone: bool = False
    """The file was deleted."""
    is_undone: bool = False

    def is_as_written(self, now: bytes | None) -> bool:
        return now is None if self.is_gone else now is not None and digest(now) == self.after


def write_changes(
    changes: Sequence[FileChange], backups: Path, protections: Sequence[Protection] = (), what: str = ""
) -> Path:
    """Write every file, after copies of all of them, then change the permissions of others; return the folder of the
    copies. `what` says what this run does. Raises `ChangeError`, and `Interrupted` once all is written.

    If one file cannot be written, those that were are put back.
    """
    with hold_signals() as held:
        folder = _new_folder(backups)
        try:
            _write_all(folder, changes, protections, what)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # a list of what was not changed would be undone later
            raise
    if held:
        written = "the file was" if len(changes) == 1 else f"all {len(changes)} files were"
        undo = f"; to take it back: foretool {what} --undo" if what not in ("", UNINSTALL) else ""
        raise Interrupted(f"interrupted after {written} changed; the old text is in {folder}{undo}", held[0])
    return folder


def _write_all(folder: Path, changes: Sequence[FileChange], protections: Sequence[Protection], what: str) -> None:
    kept: list[_Kept] = []
    try:
        for number, change in enumerate(changes):
            if _bytes_of(change.path) != change.before:
                raise ChangeError(f"{change.path}: it has changed in the meantime; run the command again")
            kept.append(_keep(folder, number, change, what))
        for wanted in protections:
            mode = wanted.path.lstat().st_mode & 0o7777
            kept.append(_Kept(str(wanted.path), None, mode, "", new_mode=wanted.mode, what=what))
        _write_list(folder, LIST, kept)
        written: list[FileChange] = []
        for change, each in zip(changes, kept, strict=False):
            try:
                _make(change, each.mode)
            except OSError as error:
                _put_back(written, kept)
                is_of_client = what == "init" and change.path.parent != folder.parent.parent
                do = (
                    "; to go on without it, name the other clients: foretool init --client NAME" if is_of_client else ""
                )
                why = f"cannot be written ({error.strerror}); nothing was changed{do}"
                raise ChangeError(f"{change.path}: {why}") from None
            written.append(change)
        for wanted in protections:
            wanted.path.chmod(wanted.mode)
    except OSError as error:
        raise ChangeError(f"{error.filename or folder}: {error.strerror}; nothing was changed") from None


def _keep(folder: Path, number: int, change: FileChange, what: str) -> _Kept:
    """Copy what a file holds and what it is to hold."""
    copy = f"{number:03}-{change.path.name}" if change.before is not None else None
    if copy is not None:
        _write(folder / copy, change.before or b"", 0o600)
    mode = change.path.stat().st_mode & 0o777 if change.before is not None else 0o600
    if change.is_gone:
        return _Kept(str(change.path), copy, mode, "", what=what, is_gone=True)
    written_copy = f"{number:03}-new-{change.path.name}"
    _write(folder / written_copy, change.after, 0o600)
    made = [str(each) for each in change.path.parents if not each.exists()]
    return _Kept(str(change.path), copy, mode, digest(change.after), written_copy, what=what, made=made)


def _make(change: FileChange, mode: int) -> None:
    if change.is_gone:
        delete(change.path, change.folders)
    else:
        make_private_folder(change.path.parent)
        _write(change.path, change.after, mode)


def delete(path: Path, folders: Iterable[Path]) -> None:
    """Delete a file, and those of these folders in which nothing else is. Raises `OSError`."""
    path.unlink()
    with suppress(OSError):  # one that is not empty stays, and so do those around it
        for folder in folders:
            folder.rmdir()


class Earlier(Struct, frozen=True):
    """How one recorded run changed a file."""

    before: bytes | None
    """None if there was no file."""
    after: str
    """The digest of what it wrote."""
    written: bytes | None
    """What it wrote, None if that was not kept, or if it deleted the file."""
    made: tuple[Path, ...] = ()
    """The folders that it made for the file, the innermost first."""
    is_gone: bool = False
    """It deleted the file."""
    copy: Path | None = None
    """The file among the copies that has what was there before."""


Revert = Callable[[Path, bytes, Earlier], bytes]
"""Takes what a run changed out of a file that was edited since, and keeps the edits. Raises `ValueError`, whose message
says why it cannot."""


class Undone(Struct):
    """What became of each file of a run that was undone."""

    restored: list[Path] = []
    """Those that are what they were, byte for byte."""
    edited: list[Path] = []
    """Those that lost what the run changed and kept what was edited since."""
    problems: list[str] = []
    """A line for each file that was left alone."""
    is_dry: bool = False
    """Nothing was written: it says what would become of them."""
    becomes: dict[Path, bytes] = {}
    """What a restored or edited file holds; nothing for one that is deleted."""
    rewritten: dict[Path, Path] = {}
    """Of the edited files, those whose servers are back, but not as they were written, and where the old text is."""


class Run:
    """A recorded run of a command that changed files and is not undone."""

    def __init__(self, folder: Path, kept: Sequence[_Kept]) -> None:
        self.folder, self._kept = folder, kept

    @property
    def what(self) -> str:
        return next((each.what for each in self._kept), "")

    @property
    def moment(self) -> str:
        """When it ran, in local time for people."""
        return _moment(self.folder)

    def has_changed(self, besides: Path) -> bool:
        """Return whether some file other than `besides` is still as the run left it."""
        return any(not each.is_undone and Path(each.path) != besides for each in self._kept)

    def versions(self, path: Path) -> tuple[bytes | None, bytes | None] | None:
        """Return a file's content before and after this run; None if it is not of the run. Raises `OSError`."""
        kept = next((each for each in self._kept if each.path == str(path)), None)
        if kept is None:
            return None
        found = _earlier(self.folder, kept)
        return found.before, found.written

    def undo(
        self,
        revert: Revert | None = None,
        keep: Callable[[Path, Earlier, Undone], str] | None = None,
        last: Path = Path(),
        *,
        dry_run: bool = False,
    ) -> Undone:
        """Put back what the run changed, or with `dry_run` only say what would become of it.

        `revert` is asked about files that were edited since; `keep` says why a file stays as it is, "" if it does not.
        The file `last` comes behind all others. What could not be put back can be undone again. Raises `ChangeError`
        where it cannot be noted that the run is undone. Ctrl-C waits: the answer says what holds.
        """
        undone = Undone(is_dry=dry_run)
        with hold_signals():
            if not dry_run:
                self._note("nothing was changed")
            # Permissions first: a file that was changed too gets back both what it held and its permissions.
            for each in sorted(self._kept, key=lambda each: (Path(each.path) == last, not each.new_mode)):
                if not each.is_undone:
                    each.is_undone = self._undo_file(Path(each.path), each, undone, revert, keep)
            if not dry_run:
                self._note("what could be put back is, but this could not be noted")
        return undone

    def _note(self, else_: str) -> None:
        """Write which files are undone. Raises `ChangeError` that ends with what holds if that is not possible."""
        try:
            _write_list(self.folder, LIST, self._kept)
            if all(each.is_undone for each in self._kept):
                (self.folder / LIST).rename(self.folder / _UNDONE)
        except OSError as error:
            raise ChangeError(f"{self.folder / LIST}: cannot be written ({error.strerror}); {else_}") from None

    def _undo_file(
        self, path: Path, kept: _Kept, undone: Undone, revert: Revert | None,
        keep: Callable[[Path, Earlier, Undone], str] | None,
    ) -> bool:  # fmt: skip
        """Put one file back; return whether nothing is left to do for it."""
        if kept.new_mode:
            return _reopen(path, kept, undone)
        try:
            now, earlier = _bytes_of(path), _earlier(self.folder, kept)
        except OSError as error:
            undone.problems.append(f"{path}: cannot be read ({error.strerror}), so it stays as it is")
            return False
        if keep is not None and (why := keep(path, earlier, undone)):
            undone.problems.append(f"{path} stays: {why}")
            return True
        try:
            if kept.is_as_written(now):
                self._restore(path, kept, earlier, undone)
                return True
            if now is not None and revert is not None:
                return self._revert(path, now, kept, revert(path, now, earlier), undone)
            why, may_succeed = "it has changed since" if now is not None else "it is gone", False
        except ValueError as error:
            why, may_succeed = str(error), not isinstance(error, EditedError)
        except OSError as error:
            undone.problems.append(f"{path}: cannot be put back ({error.strerror})")
            return False
        copy = f"; its old text is {self.folder / kept.copy}" if kept.copy else ""
        undone.problems.append(f"{path}: {why}, so it stays as it is{copy}")
        return not may_succeed

    def _restore(self, path: Path, kept: _Kept, earlier: Earlier, undone: Undone) -> None:
        if earlier.before is None:
            if not undone.is_dry:
                delete(path, earlier.made)
        else:
            if not undone.is_dry:
                make_private_folder(path.parent)
                _write(path, earlier.before, kept.mode)
            undone.becomes[path] = earlier.before
        undone.restored.append(path)

    def _revert(self, path: Path, now: bytes, kept: _Kept, after: bytes, undone: Undone) -> bool:
        """Write a file without what the run changed; what it held until now is kept beside the other copies."""
        if not undone.is_dry:
            _write(self.folder / f"edited-{kept.written or path.name}", now, 0o600)
        if not after and kept.copy is None:
            if not undone.is_dry:
                delete(path, map(Path, kept.made))
            undone.restored.append(path)
            return True
        if after != now and not undone.is_dry:
            _write(path, after, path.stat().st_mode & 0o777)
        undone.edited.append(path)
        undone.becomes[path] = after
        return True


def latest_runs(backups: Path) -> list[Run]:
    """Return the runs that are not undone, the newest first. Raises `ChangeError` for a list that cannot be read."""
    found = []
    for folder in sorted(backups.glob("*"), reverse=True):
        if (folder / LIST).is_file():
            try:
                found.append(Run(folder, _read_list(folder / LIST)))
            except (OSError, msgspec.MsgspecError) as error:
                raise ChangeError(f"{folder / LIST}: cannot be read ({error}); copy the files back by hand") from None
    return found


def undo(backups: Path, *, dry_run: bool = False) -> Undone:
    """Put back what the latest run changed, or with `dry_run` only say what would become of it. Raises `ChangeError` if
    there is nothing to undo."""
    runs = latest_runs(backups)
    if not runs:
        raise nothing_to_undo(backups)
    return runs[0].undo(dry_run=dry_run)


def nothing_to_undo(backups: Path) -> NothingToUndoError:
    """Return the error which says that no run is left to undo, and when the last one ran."""
    undone = max((each.parent for each in backups.glob(f"[0-9]*/{_UNDONE}")), default=None)
    already = f": the last change, of {_moment(undone)}, is already undone" if undone is not None else ""
    return NothingToUndoError(f"{backups}: there is nothing to undo{already}")


def _reopen(path: Path, kept: _Kept, undone: Undone) -> bool:
    """Give a file the permissions that it had, unless somebody has changed them since."""
    try:
        if path.lstat().st_mode & 0o7777 != kept.new_mode:
            undone.problems.append(f"{path}: its permissions have changed since, so they stay as they are")
            return True
        if not undone.is_dry:
            path.chmod(kept.mode)
    except OSError as error:
        undone.problems.append(f"{path}: cannot be put back ({error.strerror})")
        return False
    undone.restored.append(path)
    with suppress(OSError):
        undone.becomes[path] = path.read_bytes()
    return True


def earlier_versions(path: Path, backups: Path) -> list[Earlier]:
    """Return what each run has changed in a file, the newest first.

    Left out is what was put back, and copies that cannot be read. Lists of an older foretool do not say of each file
    whether it was put back: what they have counts.
    """
    found = []
    for folder, kept in _kept_of(path, [backups]):
        if not kept.is_undone:
            with suppress(OSError):
                found.append(_earlier(folder, kept))
    return found


def kept_texts(path: Path, folders: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield the copies of a file, the newest first, and when each was made. Those that cannot be read are left out."""
    for folder, kept in _kept_of(path, folders):
        with suppress(OSError):
            version = _earlier(folder, kept)
            texts = (version.before,) if kept.is_undone else (version.written, version.before)
            yield from ((_moment(folder), text) for text in texts if text is not None)


def _kept_of(path: Path, backups: Iterable[Path]) -> Iterator[tuple[Path, _Kept]]:
    """Yield what runs have kept of a file, those that are undone too, the newest first, and the folder of each. Lists
    that cannot be read are left out, and so are changes of its permissions."""
    folders = [each for found in backups for each in found.glob("[0-9]*")]
    for folder in sorted(folders, key=lambda each: each.name, reverse=True):
        for name in (LIST, _UNDONE):
            with suppress(OSError, msgspec.MsgspecError):
                yield from (
                    (folder, each) for each in _read_list(folder / name)
                    if each.path == str(path) and not each.new_mode
                )  # fmt: skip


def _moment(folder: Path) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.strptime(folder.name[:15], _STAMP))


def _earlier(folder: Path, kept: _Kept) -> Earlier:
    before = (folder / kept.copy).read_bytes() if kept.copy else None
    written = (folder / kept.written).read_bytes() if kept.written else None
    return Earlier(before, kept.after, written, tuple(map(Path, kept.made)), kept.is_gone,
                   folder / kept.copy if kept.copy else None)  # fmt: skip


def _read_list(path: Path) -> list[_Kept]:
    return msgspec.json.decode(path.read_bytes(), type=list[_Kept])


def _write_list(folder: Path, name: str, kept: Sequence[_Kept]) -> None:
    _write(folder / name, msgspec.json.format(msgspec.json.encode(kept)), 0o600)


def merge_texts(base: str, one: str, other: str) -> str | None:
    """Merge two changed versions of a text line by line. Returns None if both changed the same lines, or lines next to
    each other. Added lines stand beside those that the other one changed; if both added some at one place, those of
    `one` come first."""
    lines, regions = base.splitlines(keepends=True), []
    for text in (one, other):
        changed = text.splitlines(keepends=True)
        matcher = difflib.SequenceMatcher(None, lines, changed, autojunk=False)
        regions += [(i, j, changed[k:m]) for tag, i, j, k, m in matcher.get_opcodes() if tag != "equal"]
    merged: list[str] = []
    at, only_adds = -1, False
    for start, end, new in sorted(regions, key=lambda region: region[:2]):
        is_beside = start == at and (only_adds or start == end)
        if start <= at and not is_beside:
            return None
        merged += [*lines[max(at, 0) : start], *new]
        at, only_adds = end, start == end
    return "".join([*merged, *lines[max(at, 0) :]])


def digest(data: bytes) -> str:
    """Return the SHA-256 of what a file holds, as the list of changes has it."""
    return sha256(data).hexdigest()


def difference(change: FileChange) -> list[str]:
    """Return the lines of a unified diff. They hold whatever the file holds, secrets too."""
    before, after = ((each or b"").decode("utf-8", "replace").splitlines() for each in (change.before, change.after))
    return list(difflib.unified_diff(before, after, "before", "after", n=2, lineterm=""))


def _new_folder(backups: Path) -> Path:
    stamp = time.strftime(_STAMP)
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
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _put_back(written: Sequence[FileChange], kept: Sequence[_Kept]) -> None:
    for change, each in zip(written, kept, strict=False):
        if change.before is None:
            change.path.unlink(missing_ok=True)
        else:
            _write(change.path, change.before, each.mode)
