"""Watches the storage file: serving goes on without it, everybody is told once, and it is used again when it can be.

A store in trouble raises temporary errors, so the `Recorder` keeps the records in memory; this part only notices the
trouble, says so, and tries the file again every few seconds in a thread. A proxy that cannot write its state into the
file leaves a note beside it (or in the user's runtime folder), which `foretool status` and `doctor` read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from shutil import disk_usage
from typing import Final

from foretool.server.config.codes import Code
from foretool.server.recording.notes import Note, read_notes, remove_notes, write_note
from foretool.server.recording.recorder import Recorder
from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.places import ServerAddress, StorePlace
from foretool.storage.store import Store

_FIRST_RETRY_S: Final = 0.5
_RETRY_S: Final = 5.0
"""Longest pause between two tries to use the file again; the first pauses are shorter."""
_REFUSED_S: Final = 2.0
"""A store that refuses writes for this long is trouble too; shorter locks are daily business."""
_LAST_S: Final = 1.0
"""How long the end of a proxy may wait for another writer of the file; clients kill one after two seconds or more."""
_IN_MEMORY: Final = "records are kept in memory and written as soon as it can be used"
_TRY_AGAIN: Final = "; nothing was written, try again"
"""What a store says to those who have nobody to try again for them."""

log = logging.getLogger("foretool.storage")


_LEAST_FREE: Final = 1 << 20
"""Bytes that a new storage file needs at least; an empty one takes a third of this."""
ELSEWHERE: Final = 'set another path: "storage" in the foretool block of the config'


def find_full_disk(place: StorePlace) -> tuple[str, str]:
    """Return what a full disk keeps a storage file from, and the way out; two empty texts where there is room."""
    if isinstance(place, ServerAddress):
        return "", ""
    nearest = next((parent for parent in place.parents if parent.exists()), None)
    try:
        disk = disk_usage(nearest) if nearest is not None else None
    except OSError:
        disk = None
    is_full = disk is not None and disk.total > 0 and disk.free < _LEAST_FREE  # /proc has no room, and is not full
    if not is_full:
        return "", ""
    what = f"the disk of {nearest} is full"
    what = f"{what}: nothing more is recorded or learned" if place.exists() else f"cannot be created: {what}"
    return f"{place}: {what}", f"free some space, or {ELSEWHERE}"


def say_full_disk(place: StorePlace) -> str:
    """Say in one line that the disk of a storage file is full, with the code and the way out; "" where it is not."""
    what, do = find_full_disk(place)
    return f"{what}; {do} [{Code.STORAGE_UNUSABLE}]" if what else ""


class TroubleNote(Note, frozen=True):
    """What a running proxy says about a storage file that it cannot write."""

    since: float
    trouble: str

    @property
    def is_writing(self) -> bool:
        """Whether it writes all the same: a newer foretool has changed the file, and left what this version needs."""
        return not self.trouble.endswith(_IN_MEMORY)


class StoreWatch(BackgroundWork):
    """Notices when the store cannot be used, tells everybody once, and uses it again when that works; `tick` is called
    about once a second."""

    def __init__(
        self, store: Store, recorder: Recorder, tell: Callable[[str], None], on_return: Callable[[], None],
        started_at: float,
    ) -> None:  # fmt: skip
        """`tell` passes what is wrong ("" if nothing is) on to clients, each of which hears it once. `on_return` brings
        the file up to date once it can be used again; where it raises, it is called again."""
        self._store = store
        self._recorder = recorder
        self._tell = tell
        self._on_return = on_return
        self._started_at = started_at
        self._said = ""
        self._is_back = False
        """The store can be used again, and is not up to date yet."""
        self._notes: list[Path] = []
        self._pause = _FIRST_RETRY_S
        self._due = time.monotonic() + _FIRST_RETRY_S
        self._refused_at: float | None = None

    def tick(self) -> None:
        """Look at the store; say what changed; try again if it is time."""
        self._store.check()
        self._say(self._find_trouble())
        self._tell(self._said)
        if (self._store.trouble or self._is_back) and not self.is_working and time.monotonic() >= self._due:
            self._due = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _RETRY_S)
            self.begin(self._reopen())

    def hurry(self) -> None:
        """Try again now: the store can be reached."""
        if self._store.trouble and not self.is_working:
            self.begin(self._reopen())

    def write_last(self) -> None:
        """Write what waits, at the end; say how much stays unwritten."""
        if self._store.trouble:
            self._store.reopen()
        self._recorder.retry()
        until = time.monotonic() + _LAST_S
        while self._recorder.backlog.waiting and not self._store.trouble and time.monotonic() < until:
            time.sleep(0.05)
            self._recorder.retry()
        if self._recorder.backlog.waiting:
            log.error(
                "storage: %d records were never written: %s", self._recorder.backlog.waiting, self._find_trouble()
            )

    def close(self) -> None:
        """Remove the note: this proxy ends."""
        self._remove_notes()

    def _find_trouble(self) -> str:
        if self._store.trouble:
            return _say_in_memory(self._store.trouble)
        if not self._recorder.backlog.refusal:
            self._refused_at = None
            return self._store.notice
        now = time.monotonic()
        self._refused_at = self._refused_at or now
        return _say_in_memory(self._recorder.backlog.refusal) if now - self._refused_at >= _REFUSED_S else self._said

    def _say(self, trouble: str) -> None:
        if trouble == self._said:
            return
        self._said = trouble
        self._remove_notes()
        if not trouble:
            log.warning(
                "storage: %s is in use again; %d records were lost", self._store.path, self._recorder.backlog.dropped
            )
            return
        log.warning("storage: %s", trouble)
        if not isinstance(self._store.path, str):
            note = TroubleNote(os.getpid(), self._started_at, time.time(), trouble)
            self._notes = write_note(self._store.path, "trouble", note)

    def _remove_notes(self) -> None:
        remove_notes(self._notes)
        self._notes = []

    async def _reopen(self) -> None:
        # In a thread: opening waits for other processes, and the examination of a big file takes seconds.
        if await asyncio.to_thread(self._store.reopen):
            self._is_back = True
            self._on_return()
            self._pause, self._is_back = _FIRST_RETRY_S, False


def _say_in_memory(trouble: str) -> str:
    return f"{trouble.replace(_TRY_AGAIN, '')}; {_IN_MEMORY}"


def find_trouble(place: StorePlace) -> list[TroubleNote]:
    """Return what running proxies of this machine say about a store, the oldest first."""
    return sorted(read_notes(place, "trouble", TroubleNote), key=lambda note: note.since)
