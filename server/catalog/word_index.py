"""The words of all tools as the store keeps them, for a prompt hook that runs while no proxy does.

A proxy has them in memory once it has indexed its tools; the hook would read every definition for them. They hold as
long as nothing of the catalog changes in the store, and for this config alone.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from foretool._version import __version__
from foretool.server.config.servers import Server
from foretool.storage.engine import StorageError

if TYPE_CHECKING:  # a prompt hook imports this file, and no event loop
    from foretool.retrieval.corpus import Corpus
    from foretool.retrieval.word_table import WordTable
    from foretool.server.catalog.catalog import Catalog
    from foretool.server.catalog.search import Search
    from foretool.storage.sql.catalog import CatalogStore
    from foretool.storage.steps import Steps

_FORMAT: Final = 3
"""Goes up when the index says something else, so that older ones do not hold."""
LEAST: Final = 100
"""A hook reads so many tools anyway."""
MOST: Final = 20_000
"""More tools are megabytes that one write would hold the loop for."""
_AT_ONCE: Final = 200
"""How many tools one step names."""
SETTLED_S: Final = 3.0
"""The index is kept once nothing has changed for so long: servers come one after the other."""


def digest_inputs(entries: Sequence[Server], prefixes: Mapping[str, str], fingerprints: Mapping[str, str]) -> str:
    """Return a digest of the config, prefixes and fingerprints on which the stored index depends."""
    digest = hashlib.sha256(f"{_FORMAT} {__version__} {list(prefixes.items())}".encode(errors="replace"))
    for each in entries:
        entry = each.entry
        read = (fingerprints[each.name], each.prefix, entry.include, entry.exclude, entry.pin, entry.tools)
        digest.update(f"\n{each.name!r} {read!r}".encode(errors="replace"))
    return digest.hexdigest()


def read_words(store: CatalogStore, inputs: str) -> WordTable | None:
    """Return the index that is kept for these inputs, None if there is none that holds."""
    from foretool.retrieval.word_table import WordTable

    try:
        table = store.word_index(inputs)
        return WordTable(table) if table is not None else None
    except (StorageError, ValueError):
        return None


class WordIndexKeeper:
    """Writes the index whenever it has changed and the proxy has time."""

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
        """Keep the index, in steps, once all tools are indexed and nothing has changed for `SETTLED_S`."""
        if self._catalog.version != self._settled[0]:
            self._settled = (self._catalog.version, time.monotonic())
        if not LEAST < len(self._catalog) <= MOST or time.monotonic() - self._settled[1] < SETTLED_S:
            return
        corpus = self._search.indexed()
        if corpus is None:
            return
        inputs = self._inputs()
        changes = self._store.changes()
        if changes is None or self._kept == (corpus.version, changes, inputs):
            return
        version = corpus.version
        # That of an earlier run holds, and that of another proxy.
        if self._kept[0] < 0 and self._store.word_index(inputs) is not None:
            self._kept = (version, changes, inputs)
            return
        table = yield from self._pack(corpus)
        if corpus.version == version:
            self._store.save_word_index(inputs, changes, table)
            self._kept = (version, changes, inputs)

    def _pack(self, corpus: Corpus) -> Steps[bytes]:
        from foretool.retrieval.word_table import pack_table

        tools = []
        for slot, id in enumerate(corpus.ids):
            if slot % _AT_ONCE == 0:
                yield
            tool = self._catalog.get(id) if id is not None else None
            tools.append(msgspec.json.encode((tool.id, tool.upstream, tool.name)) if tool is not None else b"")
        return (yield from pack_table(corpus.lexical.all_impacts(), tools, len(corpus)))
