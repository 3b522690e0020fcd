"""Work that only one process does for a storage file: whoever holds the lock of a small file beside it has the lead.

The operating system drops the lock when its process ends, however it ends. So a lead needs no clock and no process id,
and nothing has to be cleaned up. The file says who has the lead and what it does, for people who ask; nobody decides by
what it says. SQLite locks the file next to it in the same way, so where locks do not work there is no store either.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from foretool.storage.engine import BEAT_S, Lead, StorageError
from foretool.storage.records import Holder
from foretool.storage.sqlite.connecting import Location

_AGAIN_S: Final = (0.01, 0.02, 0.0)
"""Pauses between tries to lock: `holder` looks with a lock of its own, for some microseconds."""
_MOST: Final = 4_096
_LOCKED_AT: Final = 1 << 20
"""Where Windows locks a byte; it keeps others from reading what is locked, so that is not where the text stands."""


class FileLead(Lead):
    """A lead that is an open, locked file beside the file of a store."""

    def __init__(self, storage: Location, work: str) -> None:
        """`work` names the kind of work, and ends the name of the file. A store in memory belongs to one process, which
        always gets the lead."""
        real = storage.resolve() if isinstance(storage, Path) else None
        self.path = real.with_name(f"{real.name}.{work}") if real is not None else None
        self._handle = -1
        self._since = self._beat_at = 0.0

    @property
    def is_held(self) -> bool:
        return self._handle >= 0

    def take(self) -> bool:
        if self.path is None or self.is_held:
            return True
        try:
            handle = _take(self.path)
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror or error}; foretool needs to write there") from error
        if handle is None:
            return False
        self._handle, self._since, self._beat_at = handle, time.time(), 0.0
        self.beat("")
        self._beat_at = 0.0  # what is done first is worth to be known
        return True

    def beat(self, doing: str) -> None:
        now = time.monotonic()
        if not self.is_held or (self._beat_at and now - self._beat_at < BEAT_S):
            return
        self._beat_at = now
        said = msgspec.json.encode(Holder(os.getpid(), self._since, time.time(), doing[:200]))
        with suppress(OSError):  # on a full disk nobody can read who has it
            os.lseek(self._handle, 0, os.SEEK_SET)
            os.write(self._handle, said)
            os.ftruncate(self._handle, len(said))

    def holder(self) -> Holder | None:
        if self.path is None:
            return None
        try:
            handle = os.open(self.path, os.O_RDONLY | _SAFE)
        except OSError:
            return None
        try:
            if not self.is_held and _lock(handle, shared=True):
                return None
            return msgspec.json.decode(os.read(handle, _MOST), type=Holder)
        except (OSError, msgspec.MsgspecError):
            return None
        finally:
            os.close(handle)

    def release(self) -> None:
        # The file stays: removing it would let two processes lock two files.
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


# Through getattr: Windows has no such flags.
_SAFE: Final[int] = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


def _take(path: Path) -> int | None:
    """Return the locked file, None if another process has locked it. Raises `OSError`."""
    handle = _open(path)
    try:
        for pause in _AGAIN_S:
            if _lock(handle):
                return handle
            time.sleep(pause)
    except OSError:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _open(path: Path) -> int:
    """Open or make the file. A link or anything but a regular file is refused: somebody else put it there."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o600)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError("not a regular file; move it away")
    return handle


_fcntl: Any
_msvcrt: Any
try:
    import fcntl as _fcntl
except ImportError:
    import msvcrt as _msvcrt

    _fcntl = None


def _lock(handle: int, *, shared: bool = False) -> bool:
    """Lock an open file without waiting; False if another process has locked it. Raises `OSError`."""
    try:
        if _fcntl is not None:
            _fcntl.flock(handle, (_fcntl.LOCK_SH if shared else _fcntl.LOCK_EX) | _fcntl.LOCK_NB)
        else:
            os.lseek(handle, _LOCKED_AT, os.SEEK_SET)
            _msvcrt.locking(handle, _msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    return True
