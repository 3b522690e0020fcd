"""The vectors of tools: in the store, and in memory while the store refuses them.

A full disk or a folder that nobody may write is no reason to rank by words alone: what is embedded then serves until
the proxy ends, and is kept as soon as the store takes it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from foretool.storage.engine import StorageError
from foretool.storage.store import Store


class KeptVectors:
    """Reads and keeps vectors, by the encoder's key and the hash of their text."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unsaved: dict[str, dict[bytes, bytes]] = {}
        """By encoder: what the store has refused."""
        self.refused = ""
        """Why it did, the last time; "" while it takes everything."""

    def missing(self, encoder: str, digests: Collection[bytes]) -> set[bytes]:
        """Return which of these texts have no vector of this encoder; from any thread."""
        missing = set(digests)
        with suppress(StorageError):
            missing = self._store.vectors.missing(encoder, digests)
        return missing.difference(self._unsaved.get(encoder, ()))

    def load(self, encoder: str, digests: Collection[bytes]) -> dict[bytes, bytes]:
        """Return those of these vectors that there are; from any thread."""
        unsaved = self._unsaved.get(encoder, {})
        found = {digest: unsaved[digest] for digest in digests if digest in unsaved}
        with suppress(StorageError):
            found |= self._store.vectors.load(encoder, digests)
        return found

    def save(self, encoder: str, vectors: Mapping[bytes, bytes]) -> None:
        """Keep vectors, with those that the store has refused before."""
        unsaved = {**self._unsaved.get(encoder, {}), **vectors}
        try:
            self._store.vectors.save(encoder, unsaved)
        except StorageError as error:
            self._unsaved[encoder], self.refused = unsaved, str(error)
        else:
            self._unsaved.pop(encoder, None)
            self.refused = ""
