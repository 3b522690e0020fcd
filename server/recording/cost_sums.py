"""Adds up the log for `foretool status --stats` and the page in the background, a little at a time, in a thread.

The log of an earlier version is added up in the same way, from its start; until then those who ask read what is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

from foretool.server.recording.costs import add_next
from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.opening import open_store
from foretool.storage.places import StorePlace
from foretool.storage.stores import StorageError, Store

SETTLED_S: Final = 60.0
"""A proxy that has just started has other things to do."""
EVERY_S: Final = 600.0
"""Pause between two runs; of several proxies that share a store, one runs."""
PART: Final = 500
"""Calls that are added up at once, which takes some 20 ms of Python."""
PAUSE_S: Final = 0.2
"""Between two parts, so that calls get their turn."""


class CostKeeper(BackgroundWork):
    """Starts to add up what is new when it is time; housekeeping calls `tick` about once a second."""

    def __init__(self, store: Store, clock: Callable[[], float] = lambda: time.time()) -> None:
        self._store = store
        self._clock = clock
        self._due = clock() + SETTLED_S
        self._has_turn = False
        """A run has failed, and it is still for this proxy to do it."""

    def tick(self) -> None:
        """Start a run if one is due and no other proxy does it; a store in memory is read as it is."""
        path, now = self._store.path, self._clock()
        is_due = now >= self._due or self.has_failed
        if not is_due or self.is_working or self._store.trouble or isinstance(path, str):
            return
        self._due = now + EVERY_S
        self.begin(self._add_up(path, now))

    async def _add_up(self, path: StorePlace, now: float) -> None:
        if not (self._has_turn or self._store.costs.take_turn(now, int(now + EVERY_S))):
            return
        self._has_turn = True
        while await asyncio.to_thread(_add, path, now):
            await asyncio.sleep(PAUSE_S)
        self._has_turn = False


def add_everything(path: StorePlace, pause_s: float) -> None:
    """Add up all that waits, part by part, unless another process does it; for a thread of a process that serves no
    clients."""
    with contextlib.suppress(StorageError), open_store(path) as store:
        now = time.time()
        if store.costs.take_turn(now, int(now + EVERY_S)):
            while add_next(store, time.time(), PART):
                time.sleep(pause_s)


def _add(path: StorePlace, now: float) -> bool:
    with open_store(path) as store:
        return add_next(store, now, PART)
