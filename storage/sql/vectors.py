"""The table `vectors`: embeddings, so that each encoder embeds a text only once.

A row is found by the encoder's key (its name and a hash of its weights) and the hash of the text. The vector is kept as
the bytes of its float32 values.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Final

from foretool.storage.sql.database import Subject

_AT_ONCE: Final = 500
"""Vectors that one query reads."""


class VectorStore(Subject):
    """Embeddings, by the encoder's key and the hash of the text."""

    def save(self, encoder: str, vectors: Mapping[bytes, bytes]) -> None:
        """Keep vectors by the hash of their text."""
        now = time.time()
        self._database.write_all(
            "INSERT INTO vectors (encoder, digest, data, used_at) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (encoder, digest) DO UPDATE SET data = excluded.data, used_at = excluded.used_at",
            ((encoder, digest, data, now) for digest, data in vectors.items()),
        )

    def load(self, encoder: str, digests: Collection[bytes]) -> dict[bytes, bytes]:
        """Return those of the wanted vectors that are kept; from any thread."""
        with self._database.own() as database:
            found: dict[bytes, bytes] = {}
            wanted = iter(digests)
            while part := tuple(islice(wanted, _AT_ONCE)):
                marks = ", ".join("?" * len(part))
                sql = f"SELECT digest, data FROM vectors WHERE encoder = ? AND digest IN ({marks})"  # noqa: S608
                found.update(database.rows(sql, (encoder, *part)))
            return found

    def missing(self, encoder: str, digests: Collection[bytes]) -> set[bytes]:
        """Return which of these texts this encoder has not embedded; from any thread."""
        with self._database.own() as database:
            rows = database.each_row("SELECT digest FROM vectors WHERE encoder = ?", (encoder,))
            return set(digests).difference(digest for (digest,) in rows)

    def forget(self, digests: Collection[bytes]) -> int:
        """Delete the vectors of these texts, of every encoder; return how many there were."""
        before = self._count()
        self._database.write_all("DELETE FROM vectors WHERE digest = ?", ((digest,) for digest in digests))
        return before - self._count()

    def _count(self) -> int:
        return int(self._database.rows("SELECT count(*) FROM vectors")[0][0])

    def known(self, encoder: str) -> set[bytes]:
        """Return the hashes of all texts that this encoder has embedded."""
        rows = self._database.rows("SELECT digest FROM vectors WHERE encoder = ?", (encoder,))
        return {digest for (digest,) in rows}
