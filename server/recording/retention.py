"""Deletes records that are older than the setting `retention_days`, about once an hour, in a thread."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Final

from foretool.server.config.loader import LiveConfig
from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.store import Store

SETTLED_S: Final = 120.0
"""A proxy that has just started has other things to do."""
_EVERY_S: Final = 3600.0
"""Pause between two runs; of several proxies that share a store, one runs."""
_PART: Final = 10_000
"""Records that one call deletes at most; it takes about a second."""
DAY_S: Final = 86_400.0

log = logging.getLogger("foretool.storage")


class Retention(BackgroundWork):
    """Starts to delete old records when it is time; housekeeping calls `tick` about once a second."""

    def __init__(
        self, store: Store, config: LiveConfig, used_vectors: Callable[[], Collection[bytes]],
        clock: Callable[[], float] = lambda: time.time(),
    ) -> None:  # fmt: skip
        """`used_vectors` returns the hashes of the texts whose vectors serve now."""
        self._store = store
        self._config = config
        self._used_vectors = used_vectors
        self._clock = clock
        self._due = clock() + SETTLED_S
        self._has_turn = False
        """A run has failed, and it is still for this proxy to do it."""

    def tick(self) -> None:
        """Start a run if one is due and no other proxy has done it."""
        days, now = self._config.settings.retention_days, self._clock()
        is_due = now >= self._due or self.has_failed
        if not is_due or self.is_working or self._store.trouble:
            return
        self._due = now + _EVERY_S
        self.begin(self._prune(now, now - days * DAY_S if days else 0.0))

    async def _prune(self, now: float, before: float) -> None:
        if not (self._has_turn or self._store.retention.take_turn(now, int(now + _EVERY_S))):
            return
        self._has_turn = True
        # Vectors that are still used count as new once half of their time is over.
        used = tuple(self._used_vectors())
        await asyncio.to_thread(self._store.retention.touch_vectors, used, now, (now + before) / 2)
        deleted = 0
        while part := await asyncio.to_thread(self._store.retention.prune, before, _PART):
            deleted += part
        self._has_turn = False
        if deleted:
            log.info("deleted %d records older than %g days", deleted, self._config.settings.retention_days)
