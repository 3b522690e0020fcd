"""What any engine of a store gives its callers: errors, and the right to do one kind of work alone.

Every method of a store may raise `StorageError`. A write that raised has left nothing in the store and may be repeated.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from foretool.storage.records import Holder

BEAT_S: Final = 5.0
"""Seconds between two signs of life of a process that has a lead."""

NEWER_VERSION: Final = "restart the clients of this proxy, or foretool serve"
"""The way out where a newer foretool has changed a store that a proxy serves from."""


class StorageError(Exception):
    """The store could not be read or written; the message says which store, what was found, and the way out."""

    def __init__(self, message: str, *, temporary: bool = False, lost: bool = False) -> None:
        super().__init__(message)
        self.temporary = temporary
        """The same call may succeed later: the store was locked, or the disk full."""
        self.lost = lost
        """No call succeeds until something happens to the file: it is damaged, read-only or of another version."""


class Lead(AbstractContextManager["Lead"], Protocol):
    """The right of one process to do one kind of work for a store, until its `release` or the end of the process.

    A process that loses its connection to the store has lost the lead as well; `is_held` then says so.
    """

    @property
    def is_held(self) -> bool:
        """Whether this object has the lead."""

    def take(self) -> bool:
        """Take the lead. Returns False if another process has it. Raises `StorageError` if none can be had."""

    def beat(self, doing: str) -> None:
        """Write down for others what is being done. Does nothing within `BEAT_S` seconds of the last time."""

    def holder(self) -> Holder | None:
        """Return which process has the lead; None if none has, or it cannot be told."""

    def release(self) -> None:
        """Let others take the lead."""

    def __exit__(self, *_: object) -> None:
        self.release()
