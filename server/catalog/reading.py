"""Reads what is still in the store alone, in slices, and calls back who has to wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from foretool.server.catalog.catalog import Catalog
from foretool.server.transports.tasks import BackgroundWork, in_slices

log = logging.getLogger("foretool.catalog")


class CatalogReader(BackgroundWork):
    """Reads the rest of a large catalog before requests that need all of it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._waiting: list[Callable[[], None]] = []

    def when_read(self, go: Callable[[], None]) -> None:
        """Call `go` once every tool is read: now, or in a later turn of the loop."""
        if not self._catalog.is_unread:
            go()
            return
        self._waiting.append(go)
        if not self.is_working:
            self.begin(self._read())

    async def _read(self) -> None:
        try:
            await in_slices(self._catalog.read_rest())
        except Exception:  # whoever asks reads it in one go, and says itself what is wrong
            log.exception("The catalog could not be read in slices")
        waiting, self._waiting = self._waiting, []
        for go in waiting:
            asyncio.get_running_loop().call_soon(go)  # one that fails keeps no other waiting
