"""Keeps records in a file of this machine while the database is away, so that they outlive a proxy that is killed.

Each line holds one call with its misses and its entry of the audit log. A proxy holds a lock on its file as long as it
runs; one that finds a file without a lock writes what is in it into the database and removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder, Encoder

from foretool.storage.records import AuditEntry, Call, Miss, SessionRecord

_MOST_BYTES: Final = 64 * 1024 * 1024
"""Bytes that the file of one proxy may have."""
_PREFIX: Final = "spool-"


class Spooled(Struct, frozen=True, omit_defaults=True):
    call: Call | None = None
    misses: Sequence[Miss] = ()
    entry: AuditEntry | None = None
    session: SessionRecord | None = None
    person: str = ""
    """Whose the session is, "" where that is not kept."""
    learns: bool = True
    """Whether that person is learned from."""


_encode = Encoder().encode
_decode = Decoder(Spooled).decode


class Spool:
    """The file of this proxy. It is made with the first record that has to wait."""

    def __init__(self, folder: Path, most: int = _MOST_BYTES) -> None:
        self._folder = folder
        self._most = most
        self._path: Path | None = None
        self._descriptor = -1
        self._size = 0

    @property
    def is_full(self) -> bool:
        return self._size >= self._most

    def add(self, records: Sequence[Spooled]) -> bool:
        """Keep records; return False if there is no room for them, or no file can be written."""
        if self.is_full:
            return False
        data = b"".join(_encode(record) + b"\n" for record in records)
        try:
            if self._descriptor < 0:
                self._open()
            self._size += os.write(self._descriptor, data)
        except OSError as error:
            log.warning("%s: %s; records wait in memory alone", self._folder, error.strerror)
            self._size = self._most  # not tried again until everything is written
            return False
        return True

    def _open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}.jsonl"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor, self._path = os.open(path, flags, 0o600), path
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def clear(self) -> None:
        """Forget everything: the database has it."""
        self._size = 0
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)

    def close(self) -> None:
        """Remove the file, unless it holds records."""
        if self._descriptor < 0:
            return
        if not self._size and self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = -1


class LeftSpool:
    """The file of a proxy that has ended. It is locked until `close`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def read(self) -> Iterator[Spooled]:
        """Yield what it holds; a line that was cut off when its proxy was killed is left out."""
        with self._path.open("rb") as file:
            for line in file:
                with contextlib.suppress(MsgspecError, ValueError):
                    yield _decode(line)

    def remove(self) -> None:
        """Remove the file: the database has what it holds."""
        with contextlib.suppress(OSError):
            self._path.unlink()

    def close(self) -> None:
        os.close(self._descriptor)


def find_left(folder: Path) -> LeftSpool | None:
    """Return a file in a folder that no running proxy has, locked; None if there is none."""
    for path in sorted(folder.glob(f"{_PREFIX}*.jsonl")):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_nlink:  # else another proxy has just removed it
                    return LeftSpool(path, descriptor)
            except OSError:
                os.close(descriptor)
                continue
            os.close(descriptor)
    return None


log = logging.getLogger("foretool.recorder")
