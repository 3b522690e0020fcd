"""Keeps exposed names in the store, so that a name never comes to mean another tool."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from foretool.server.catalog.names import Key
from foretool.storage.records import ToolId
from foretool.storage.stores import CatalogStore, StorageError


class NameKeeper:
    """Saves the names that the catalog gives for good, shortly after the answer that uses them."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self._unsaved: dict[ToolId, Key] = {}

    def load(self) -> dict[Key, ToolId]:
        """Return every name that was ever given."""
        return {key: tool for tool, key in self._store.exposed_names().items()}

    def keep(self, names: Mapping[ToolId, Key]) -> None:
        """Save names in a later turn of the loop."""
        self._unsaved.update(names)
        asyncio.get_running_loop().call_soon(self.save)

    def save(self) -> None:
        """Save what is not saved; called again about once a second, for a store that refused it."""
        if self._unsaved:
            with contextlib.suppress(StorageError):
                self._store.save_exposed_names(self._unsaved)
                self._unsaved.clear()
