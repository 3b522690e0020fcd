"""The cache of embeddings: a text is embedded once per encoder, whoever has it and however often it comes back.

A vector is kept by its encoder's key (name and hash of the weights) and the hash of the text, as the bytes of float32.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from foretool.storage.store import Store

FRESH_S = 7 * 86_400.0
"""A vector in use is marked as such at most this often."""


class Vectors:
    """The vectors in one open store; other proxies read and write the same ones. May raise `StorageError`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def save(self, encoder: str, vectors: Mapping[bytes, bytes], at: float | None = None) -> None:
        """Keep vectors by the hash of their text; `at`: when, now unless given."""
        used_at = time.time() if at is None else at
        rows = ((encoder, digest, data, used_at) for digest, data in vectors.items())
        self._store.write_all(
            "INSERT OR REPLACE INTO vectors (encoder, digest, data, used_at) VALUES (?, ?, ?, ?)", rows
        )

    def load(self, encoder: str, digests: Collection[bytes], at: float | None = None) -> dict[bytes, bytes]:
        """Those of the wanted that are kept."""
        wanted = set(digests)
        now = time.time() if at is None else at
        found: dict[bytes, bytes] = {}
        old: list[tuple[float, str, bytes]] = []
        rows = self._store.read("SELECT digest, data, used_at FROM vectors WHERE encoder = ?", (encoder,))
        for digest, data, used_at in rows:
            if digest in wanted:
                found[digest] = data
                if used_at < now - FRESH_S:
                    old.append((now, encoder, digest))
        if old:
            self._store.write_all("UPDATE vectors SET used_at = ? WHERE encoder = ? AND digest = ?", old)
        return found

    def known(self, encoder: str) -> set[bytes]:
        """The hashes of all texts that are embedded."""
        return {digest for (digest,) in self._store.read("SELECT digest FROM vectors WHERE encoder = ?", (encoder,))}

    def prune(self, before: float) -> int:
        """Forget vectors that nobody has used since; returns how many."""
        (count,) = self._store.read("SELECT count(*) FROM vectors WHERE used_at < ?", (before,))[0]
        if count:
            self._store.write_all("DELETE FROM vectors WHERE used_at < ?", [(before,)])
        return int(count)
