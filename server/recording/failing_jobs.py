"""Says which background jobs of a running proxy fail, in a note that `foretool status` and `doctor` read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from foretool.server.config.codes import Code
from foretool.server.recording.notes import Note, read_notes, remove_notes, write_note
from foretool.server.transports.guard import FailingJob, Guard
from foretool.storage.places import StorePlace


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
