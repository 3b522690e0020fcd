"""What happened, into the store before the client hears of it.

Records gather while answers are worked out and are committed in one transaction before those answers are sent. A store
that cannot take them (locked, full) never makes a client wait or loses a record: they stay here and are tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from msgspec.structs import replace

from foretool.storage.records import Call, Discovery, Exposure, Miss
from foretool.storage.store import StorageError

KEEP: Final = 20_000
"""Records kept while the store refuses them; the oldest go first beyond that, and are counted."""

log = logging.getLogger("foretool.recorder")


class Sink(Protocol):
    """The part of the store the recorder writes to."""

    def record(self, calls: Sequence[Call], misses: Sequence[Miss] = ()) -> None: ...

    def add_exposure(self, exposure: Exposure) -> int: ...

    def add_discovery(self, discovery: Discovery) -> int: ...


@dataclass(frozen=True, slots=True)
class Statistics:
    written: int
    waiting: int
    dropped: int
    failures: int


class Recorder:
    """See the module."""

    def __init__(self, store: Sink) -> None:
        self._store = store
        self._calls: list[Call] = []
        self._misses: list[Miss] = []
        self._written = self._dropped = self._failures = 0
        self._failing = False

    def call(self, call: Call, misses: Sequence[Miss] = ()) -> None:
        """A call, and the misses it brought to light."""
        self._calls.append(call)
        self._misses.extend(replace(miss, call=len(self._calls)) for miss in misses)

    def miss(self, miss: Miss) -> None:
        self._misses.append(miss)

    def exposure(self, exposure: Exposure) -> int:
        """Its id, 0 when the store refuses it."""
        try:
            return self._store.add_exposure(exposure)
        except StorageError as error:
            self._refused(error)
            return 0

    def discovery(self, discovery: Discovery) -> int:
        """Its id, 0 when the store refuses it."""
        try:
            return self._store.add_discovery(discovery)
        except StorageError as error:
            self._refused(error)
            return 0

    def commit(self) -> None:
        """Write what has gathered; called before answers are sent. Never raises."""
        if not self._calls and not self._misses:
            return
        try:
            self._store.record(self._calls, self._misses)
        except StorageError as error:
            self._refused(error)
            if error.temporary:
                self._trim()
                return
            self._write_singly()
        else:
            self._written += len(self._calls) + len(self._misses)
        self._calls, self._misses = [], []
        if self._failing:
            self._failing = False
            log.warning("storage: records are written again; none of the waiting ones was lost")

    def statistics(self) -> Statistics:
        return Statistics(self._written, len(self._calls) + len(self._misses), self._dropped, self._failures)

    def _write_singly(self) -> None:
        """One of them can never be written: keep it from holding up the others."""
        batches: list[tuple[list[Call], list[Miss]]] = [
            ([call], [replace(miss, call=1) for miss in self._misses if miss.call == place])
            for place, call in enumerate(self._calls, 1)
        ]
        batches += [([], [miss]) for miss in self._misses if not miss.call]
        for calls, misses in batches:
            try:
                self._store.record(calls, misses)
                self._written += len(calls) + len(misses)
            except StorageError:
                self._dropped += len(calls) + len(misses)

    def _refused(self, error: StorageError) -> None:
        self._failures += 1
        if not self._failing:
            self._failing = True
            log.warning("%s; calls go on, their records wait in memory", error)

    def _trim(self) -> None:
        over = len(self._calls) - KEEP
        if over > 0:
            kept = [replace(miss, call=max(miss.call - over, 0)) for miss in self._misses]
            self._calls, self._misses = self._calls[over:], kept[-KEEP:]
            self._dropped += over
