"""An encoder whose vectors are kept in a store by the hash of their text, so that no text is embedded twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from foretool.retrieval import encoders
from foretool.retrieval.corpus import digest
from foretool.retrieval.encoders import Encoder, Weights
from foretool.retrieval.model_format import Floats
from foretool.storage.opening import open_store
from foretool.storage.sql.artifacts import VectorStore

AT_ONCE = 256
"""Texts between two writes, so that an interrupted run loses little."""


class KeptEncoder:
    """Wraps an `Encoder` and is one itself."""

    def __init__(self, encoder: Encoder, vectors: VectorStore, key: str, query_key: str = "") -> None:
        """`key`: what the vectors of documents are kept under; `query_key`: the same of queries. Without it every query
        is embedded when it is asked, which is what a benchmark of latency wants."""
        self.encoder, self.name = encoder, encoder.name
        self.vectors, self.key, self.query_key = vectors, key, query_key
        self._queries: dict[bytes, bytes] | None = None

    def documents(self, texts: Sequence[str]) -> Floats:
        """(texts, dimension)"""
        return matrix_of(texts, self.rows(texts))

    def rows(self, texts: Sequence[str]) -> dict[bytes, bytes]:
        """The vectors of documents as bytes, by the hash of the text."""
        held = self.vectors.load(self.key, {digest(text) for text in texts})
        self._complete(held, texts, self.key, self.encoder.documents)
        return held

    def queries(self, texts: Sequence[str]) -> Floats:
        """(texts, dimension)"""
        if not self.query_key:
            return self.encoder.queries(texts)
        if self._queries is None:
            # All at once: queries come one by one, and each load reads the whole table.
            self._queries = self.vectors.load(self.query_key, self.vectors.known(self.query_key))
        self._complete(self._queries, texts, self.query_key, self.encoder.queries)
        return matrix_of(texts, self._queries)

    def _complete(
        self, held: dict[bytes, bytes], texts: Sequence[str], key: str, embed: Callable[[Sequence[str]], Floats]
    ) -> None:
        """Embed the texts that `held` lacks, and keep them under `key`."""
        missing = {each: text for text in texts if (each := digest(text)) not in held}
        # Texts of similar length run together: a batch takes as long as its longest text.
        order = sorted(missing, key=lambda each: len(missing[each]))
        for start in range(0, len(order), AT_ONCE):
            part = order[start : start + AT_ONCE]
            rows = embed([missing[each] for each in part])
            new = {each: row.tobytes() for each, row in zip(part, rows, strict=True)}
            self.vectors.save(key, new)
            held.update(new)


def matrix_of(texts: Sequence[str], rows: Mapping[bytes, bytes]) -> Floats:
    """(texts, dimension)"""
    return np.stack([np.frombuffer(rows[digest(text)], np.float32) for text in texts])


def open_kept(weights: Weights, vectors: VectorStore, *, queries: bool = True) -> KeptEncoder:
    """Open the encoder of these weights; without `queries` its queries are not kept. Raises `EncoderError`."""
    encoder = encoders.open_encoder(weights)
    return KeptEncoder(encoder, vectors, weights.key, weights.query_key if queries else "")


@contextmanager
def open_vectors(folder: Path | None) -> Iterator[VectorStore]:
    """Open the vectors that are kept in a folder; without a folder they last as long as the block."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with open_store(folder / "vectors.sqlite3" if folder else ":memory:") as store:
        yield store.vectors


def joined_queries(each_encoder: Sequence[Encoder]) -> Callable[[Sequence[str]], Floats] | None:
    """Embeds queries by all of the encoders, their vectors one after the other; None without any encoder."""
    if not each_encoder:
        return None
    return lambda texts: np.concatenate([encoder.queries(texts) for encoder in each_encoder], axis=1)
