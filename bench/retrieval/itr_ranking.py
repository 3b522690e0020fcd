"""The ranking of ITR as published: eq. 3 over a pool, before its selection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp

from bench.papers.published.cross_encoder import CrossEncoder
from bench.papers.published.itr import PUBLISHED, retrieve
from bench.retrieval.pool import Pool
from foretool.desk.replay.rankings import bm25_scores
from foretool.retrieval.encoders import EncoderError
from foretool.storage.records import ToolId

Scores = Callable[[str], list[tuple[ToolId, float]]]
"""The best tools for a query with their scores, best first."""


class Signals:
    """The three signals of eq. 3: cosines of the pool's first encoder, textbook BM25, a cross-encoder's sigmoid."""

    def __init__(self, pool: Pool, *, cross: bool = True) -> None:
        """`cross`: with the cross-encoder, where it is installed."""
        self._pool = pool
        self._bm25 = bm25_scores(pool.tools)
        self.cross_encoder = open_cross_encoder() if cross else None
        meaning = pool.pipeline(1).dense
        self._head = meaning.heads[0] if meaning is not None else None
        self._slots = [pool.corpus.slot_of[tool.id] for tool in pool.tools]

    def cosines(self, query: str) -> Sequence[float]:
        """(tools,), zeros without an encoder."""
        if self._head is None:
            return [0.0] * len(self._slots)
        found = self._head.nearness(self._head.encoder.queries([query]))[0].tolist()
        return [found[slot] for slot in self._slots]

    def words(self, query: str) -> Sequence[float]:
        """(tools,), without a fixed range."""
        return self._bm25(query)

    def cross(self, query: str, places: Sequence[int]) -> Sequence[float] | None:
        """(places,), 0 to 1; None without a cross-encoder."""
        if self.cross_encoder is None:
            return None
        texts = [self._pool.said[self._pool.tools[place].id] for place in places]
        return [1.0 / (1.0 + exp(-max(min(logit, 30.0), -30.0))) for logit in self.cross_encoder.scores(query, texts)]


def open_cross_encoder() -> CrossEncoder | None:
    """The cross-encoder, or None where it is not installed."""
    try:
        return CrossEncoder()
    except EncoderError:
        return None


def published(pool: Pool, *, cross: bool = True) -> Scores:
    """Ranks the best M_B tools by eq. 3."""
    signals = Signals(pool, cross=cross)

    def search(query: str) -> list[tuple[ToolId, float]]:
        found = retrieve(query, signals, PUBLISHED.top_tools)
        return [(pool.tools[place].id, score) for place, score in found]

    return search
