"""Files in which a running proxy says what it cannot, or need not, write into its storage.

A note stands beside the storage file, or else in the user's runtime folder, and is removed when what it says is over.
`foretool status` and `doctor` read the notes of proxies that run, and remove those of proxies that were killed.

One of them says which background jobs of the proxy fail (`JobsWatch`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from foretool.server.config.codes import Code
from foretool.server.system.processes import is_running
from foretool.server.transports.guard import FailingJob, Guard
from foretool.storage.places import ServerAddress, StorePlace, local_file

Kind = Literal["trouble", "jobs"]
"""The end of a note's name."""
_MOST_READ: Final = 65_536


class Note(msgspec.Struct, frozen=True):
    """What a running proxy tells commands, in a file beside the store."""

    pid: int
    started_at: float
    """When the proxy started, to tell it from a later process with its id."""


N = TypeVar("N", bound=Note)


def write_note(place: StorePlace, kind: Kind, note: Note) -> list[Path]:
    """Leave a note beside a storage file, or else in the runtime folder. Returns where it stands, [] for nowhere."""
    file = local_file(place)
    if file is not None and isinstance(place, ServerAddress):
        with contextlib.suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in _paths(file, f"{note.pid}.{kind}") if file is not None else ():
        if _write(path, msgspec.json.encode(note)):
            return [path]
    return []


def _write(path: Path, data: bytes) -> bool:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError:  # no room for it
        remove_notes([path])
        return False
    return True


def remove_notes(paths: list[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()


def read_notes(place: StorePlace, kind: Kind, type: type[N]) -> list[N]:
    """Return the notes of running proxies of this machine about a store; notes of dead ones are removed."""
    found: list[N] = []
    file = local_file(place)
    for pattern in _paths(file, f"*.{kind}") if file is not None else ():
        with contextlib.suppress(OSError):
            for path in sorted(pattern.parent.glob(pattern.name)):
                found += _read(path, type)
    return found


def _read(path: Path, type: type[N]) -> Iterator[N]:
    with contextlib.suppress(OSError, msgspec.DecodeError):
        note = msgspec.json.decode(path.read_bytes()[:_MOST_READ], type=type)
        if is_running(note.pid, note.started_at):
            yield note
        else:
            path.unlink()


def _paths(storage: Path, end: str) -> Iterator[Path]:
    yield storage.parent / f"{storage.name}.{end}"
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / f"foretool-{hashlib.sha256(bytes(storage)).hexdigest()[:16]}.{end}"


class ProxyJob(Struct, frozen=True):
    """A background job of a running proxy that fails; it is tried again."""

    pid: int
    job: str
    since: float
    error: str
    code: Code


class JobsNote(Note, frozen=True):
    """What a running proxy says about its jobs."""

    jobs: tuple[FailingJob, ...]


class JobsWatch:
    """Keeps the note of a proxy up to date; housekeeping calls `tick` about once a second."""

    def __init__(self, guard: Guard, place: StorePlace | str, started_at: float, redact: Callable[[str], str]) -> None:
        """`redact`: returns a text without secrets."""
        self._guard = guard
        self._place = place
        self._started_at = started_at
        self._redact = redact
        self._noted: tuple[FailingJob, ...] = ()
        self._paths: list[Path] = []

    def tick(self) -> None:
        """Write what has changed."""
        jobs = tuple(replace(each, error=self._redact(each.error)) for each in self._guard.failing())
        if jobs == self._noted or isinstance(self._place, str):
            return
        self.close()
        if jobs:
            self._paths = write_note(self._place, "jobs", JobsNote(os.getpid(), self._started_at, jobs))
        self._noted = jobs if self._paths or not jobs else ()

    def close(self) -> None:
        """Remove the note: nothing fails, or the proxy ends."""
        remove_notes(self._paths)
        self._noted, self._paths = (), []


def find_failing_jobs(place: StorePlace) -> tuple[ProxyJob, ...]:
    """Return the background jobs that fail in running proxies of this machine, by the time since when they do."""
    found = [
        ProxyJob(note.pid, each.job, each.since, each.error, each.code)
        for note in read_notes(place, "jobs", JobsNote)
        for each in note.jobs
    ]
    return tuple(sorted(found, key=lambda each: each.since))
