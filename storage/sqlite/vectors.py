"""The table `vectors`: embeddings, so that each encoder embeds a text only once.

A row is found by the encoder's key (its name and a hash of its weights) and the hash of the text. The vector is kept as
the bytes of its float32 values.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from foretool.storage.sqlite.database import Database

MARK_USED_S = 7 * 86_400.0
"""How old the mark of the last use must be before `load` writes a new one."""


class Vectors:
    """Implements `VectorStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, encoder: str, vectors: Mapping[bytes, bytes], at: float | None = None) -> None:
        used_at = time.time() if at is None else at
        self._database.write_all(
            "INSERT OR REPLACE INTO vectors (encoder, digest, data, used_at) VALUES (?, ?, ?, ?)",
            ((encoder, digest, data, used_at) for digest, data in vectors.items()),
        )

    def load(self, encoder: str, digests: Collection[bytes], at: float | None = None) -> dict[bytes, bytes]:
        wanted = set(digests)
        now = time.time() if at is None else at
        found: dict[bytes, bytes] = {}
        old: list[tuple[float, str, bytes]] = []
        rows = self._database.rows("SELECT digest, data, used_at FROM vectors WHERE encoder = ?", (encoder,))
        for digest, data, used_at in rows:
            if digest in wanted:
                found[digest] = data
                if used_at < now - MARK_USED_S:
                    old.append((now, encoder, digest))
        if old:
            self._database.write_all("UPDATE vectors SET used_at = ? WHERE encoder = ? AND digest = ?", old)
        return found

    def known(self, encoder: str) -> set[bytes]:
        rows = self._database.rows("SELECT digest FROM vectors WHERE encoder = ?", (encoder,))
        return {digest for (digest,) in rows}

    def prune(self, before: float) -> int:
        with self._database.atomic():
            return self._database.run("DELETE FROM vectors WHERE used_at < ?", (before,)).rowcount
