"""Works on a large catalog in the background: reads its rest in slices, and keeps its words in the store.

The words are for a prompt hook that runs while no proxy does. The proxy has them in memory once it has indexed its
tools; the hook would read every definition for them. They hold as long as nothing of the catalog changes in the store,
and for this config alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.unread import words_key
from foretool.server.transports.tasks import BackgroundWork, in_slices
from foretool.storage.sql.catalog import CatalogStore

if TYPE_CHECKING:
    from foretool.retrieval.corpus import Corpus
    from foretool.server.catalog.search import Search
    from foretool.storage.steps import Steps


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


LEAST: Final = 100
"""A hook reads so many tools anyway."""
MOST: Final = 20_000
"""More tools are megabytes that one write would hold the loop for."""
AT_ONCE: Final = 200
"""How many tools one step names."""
SETTLED_S: Final = 3.0
"""The words are kept once nothing has changed for so long."""


class KeptWords:
    """Writes them whenever they have changed and the proxy has time."""

    def __init__(self, store: CatalogStore, catalog: Catalog, search: Search, inputs: Callable[[], str]) -> None:
        self._store = store
        self._catalog = catalog
        self._search = search
        self._inputs = inputs
        self._settled = (-1, 0.0)
        """The version of the catalog, and since when it has been so."""
        self._kept = (-1, -1, "")
        """The version of the indexed tools, the changes in the store and the config for which they were kept."""

    def save(self) -> Steps[None]:
        """Keep the words, in steps, once all tools are indexed and nothing has changed for `SETTLED_S`."""
        if self._catalog.version != self._settled[0]:
            self._settled = (self._catalog.version, time.monotonic())
        fits = not self._catalog.is_unread and LEAST < len(self._catalog) <= MOST
        if not fits or time.monotonic() - self._settled[1] < SETTLED_S:
            return
        corpus = self._search.indexed()
        if corpus is None:
            return
        inputs = self._inputs()
        changes = self._store.changes()
        if changes is None or self._kept == (corpus.version, changes, inputs):
            return
        version = corpus.version
        # Those of an earlier run hold, and those of another proxy.
        if self._kept[0] < 0 and self._store.summary(words_key(inputs)) is not None:
            self._kept = (version, changes, inputs)
            return
        table = yield from self._pack(corpus)
        if corpus.version == version:
            self._store.save_summary(words_key(inputs), changes, table)
            self._kept = (version, changes, inputs)

    def _pack(self, corpus: Corpus) -> Steps[bytes]:
        from foretool.retrieval.word_table import pack

        yield from corpus.lexical.prepare(())
        tools = []
        for slot, id in enumerate(corpus.ids):
            if slot % AT_ONCE == 0:
                yield
            tool = self._catalog.get(id) if id is not None else None
            tools.append(msgspec.json.encode((tool.id, tool.upstream, tool.name)) if tool is not None else b"")
        return (yield from pack(corpus.lexical.all_impacts(), tools, len(corpus)))
