"""Watches the storage file: serving goes on without it, everybody is told once, and it is used again when it can be.

A store in trouble raises temporary errors, so the `Recorder` keeps the records in memory; this part only notices the
trouble, says so, and tries the file again every few seconds in a thread. A proxy that cannot write its state into the
file leaves a note beside it (or in the user's runtime folder), which `foretool status` and `doctor` read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from foretool.server.recording.recorder import Recorder
from foretool.server.system.processes import is_running
from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.places import ServerAddress, StorePlace, local_file
from foretool.storage.stores import Store

FIRST_RETRY_S: Final = 0.5
RETRY_S: Final = 5.0
"""Longest pause between two tries to use the file again; the first pauses are shorter."""
REFUSED_S: Final = 2.0
"""A store that refuses writes for this long is trouble too; shorter locks are daily business."""
IN_MEMORY: Final = "records are kept in memory and written as soon as it can be used"
TRY_AGAIN: Final = "; nothing was written, try again"
"""What a store says to those who have nobody to try again for them."""

log = logging.getLogger("foretool.storage")


class TroubleNote(msgspec.Struct, frozen=True):
    """What a running proxy says about a storage file that it cannot write."""

    pid: int
    started_at: float
    """When the proxy started, to tell it from a later process with its id."""
    since: float
    trouble: str


class StoreWatch(BackgroundWork):
    """Notices trouble with the store, tells everybody once, and takes the file up again; `tick` comes every second."""

    def __init__(
        self, store: Store, recorder: Recorder, tell: Callable[[str], None], on_return: Callable[[], None],
        started_at: float,
    ) -> None:  # fmt: skip
        """`tell` passes what is wrong ("" if nothing is) on to clients, each of which hears it once. `on_return` brings
        the file up to date once it can be used again."""
        self._store = store
        self._recorder = recorder
        self._tell = tell
        self._on_return = on_return
        self._started_at = started_at
        self._said = ""
        self._notes: list[Path] = []
        self._pause = FIRST_RETRY_S
        self._due = time.monotonic() + FIRST_RETRY_S
        self._refused_at: float | None = None

    def tick(self) -> None:
        """Look at the store; say what changed; try again if it is time."""
        self._store.check()
        self._say(self._find_trouble())
        self._tell(self._said)
        if self._store.trouble and not self.is_working and time.monotonic() >= self._due:
            self._due = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, RETRY_S)
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
        if self._recorder.waiting:
            log.error("storage: %d records were never written: %s", self._recorder.waiting, self._find_trouble())

    def close(self) -> None:
        """Remove the note: this proxy ends."""
        self._remove_notes()

    def _find_trouble(self) -> str:
        if self._store.trouble:
            return _say_in_memory(self._store.trouble)
        if not self._recorder.refusal:
            self._refused_at = None
            return self._store.notice
        now = time.monotonic()
        self._refused_at = self._refused_at or now
        return _say_in_memory(self._recorder.refusal) if now - self._refused_at >= REFUSED_S else self._said

    def _say(self, trouble: str) -> None:
        if trouble == self._said:
            return
        self._said = trouble
        self._remove_notes()
        if not trouble:
            log.warning("storage: %s is in use again", self._store.path)
            return
        log.warning("storage: %s", trouble)
        if (file := local_file(self._store.path)) is not None:
            if isinstance(self._store.path, ServerAddress):
                with contextlib.suppress(OSError):
                    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            note = TroubleNote(os.getpid(), self._started_at, time.time(), trouble)
            self._notes = write_note(file, note)

    def _remove_notes(self) -> None:
        for path in self._notes:
            with contextlib.suppress(OSError):
                path.unlink()
        self._notes = []

    async def _reopen(self) -> None:
        # In a thread: opening waits for other processes, and the examination of a big file takes seconds.
        if await asyncio.to_thread(self._store.reopen):
            self._pause = FIRST_RETRY_S
            self._on_return()


def _say_in_memory(trouble: str) -> str:
    return f"{trouble.replace(TRY_AGAIN, '')}; {IN_MEMORY}"


def write_note(storage: Path, note: TroubleNote) -> list[Path]:
    """Leave a note beside a storage file, or else in the runtime folder. Returns where it stands, [] for nowhere."""
    data = msgspec.json.encode(note)
    for folder, prefix in _note_places(storage):
        path = folder / f"{prefix}.{note.pid}.trouble"
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            return [path]
    return []


def read_notes(place: StorePlace) -> list[TroubleNote]:
    """Return the notes of running proxies of this machine about a store, the oldest first; notes of dead ones are
    removed."""
    found: list[TroubleNote] = []
    file = local_file(place)
    for folder, prefix in _note_places(file) if file is not None else ():
        with contextlib.suppress(OSError):
            for path in sorted(folder.glob(f"{prefix}.*.trouble")):
                found += _read_note(path)
    return sorted(found, key=lambda note: note.since)


def _read_note(path: Path) -> Iterator[TroubleNote]:
    with contextlib.suppress(OSError, msgspec.DecodeError):
        note = msgspec.json.decode(path.read_bytes()[:65_536], type=TroubleNote)
        if is_running(note.pid, note.started_at):
            yield note
        else:
            path.unlink()


def _note_places(storage: Path) -> Iterator[tuple[Path, str]]:
    yield storage.parent, storage.name
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime), f"foretool-{hashlib.sha256(bytes(storage)).hexdigest()[:16]}"
