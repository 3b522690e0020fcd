"""Dense retrieval: the exact cosine of a query to every tool, by one or two encoders, and its sum with the words.

This is ITR eq. 3 with one difference: each list is z-scored over the whole pool before it is weighted. A list with one
sharp hit then has a large z and decides, a flat one hardly counts. Ranks, cosines and BM25 need no common scale, and
nobody tunes weights per catalogue. The weights were fitted on train sets and rounded.

This module imports numpy: only a process with an encoder imports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.encoders import Encoder
from foretool.retrieval.model_format import Floats
from foretool.retrieval.rankers.vector_index import VectorIndex
from foretool.retrieval.ranking import Nearness
from foretool.retrieval.score_sum import ScoreSum, by_slot, total_of, z_scores

if TYPE_CHECKING:
    from foretool.retrieval.model_format import Reading

_LEXICAL = 0.35
"""What a standard deviation of the words counts."""
_SHARPNESS = 1.25
"""The words' scores are raised to this power first: one sharp hit then counts more, a flat list less
(`docs/benchmarks.md`)."""
ALONE, TOGETHER = 0.70, 0.65
"""What a standard deviation of an encoder counts, where there is one and where there are more."""
TAUGHT = {"minilm-tools": 1.0}
"""What a standard deviation counts of one that was trained on tools, where it is the only one."""
_NEARLY_ALL = 0.9
"""The share of the tools that must have a vector before lists and learned models go by the encoders."""
UNREAD_MOST = 2.5
"""What the words of a tool without a vector count at most in place of its cosine, in standard deviations: about as much
as the best tool of an encoder has."""
_FEWEST_TOOLS = 2
"""One tool has no z-score; among two or three, encoders tell much more than words (`docs/benchmarks.md`)."""


def weight_of(encoders: str) -> float:
    """Return by what the z-scores of these encoders are multiplied in a sum, where those of the words count 1.
    `encoders`: their names, joined by `+`."""
    return TOGETHER if "+" in encoders else TAUGHT.get(encoders, ALONE)


class Dense:
    """The cosine of a query to every slot by one encoder; vectors are kept under the hash of their text."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.name = encoder, encoder.name
        self._index: VectorIndex | None = None
        self._row_of: dict[bytes, int] = {}
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)  # (slots,), 0 where there is no vector
        self.known: NDArray[np.bool_] = np.empty(0, np.bool_)
        """(slots,): which have a vector."""

    def add(self, vectors: Mapping[bytes, bytes]) -> None:
        """Add vectors by the hash of their text, each as the bytes of float32."""
        new = {digest: data for digest, data in vectors.items() if digest not in self._row_of}
        if not new:
            return
        # The shape is (new, dimension).
        rows = np.frombuffer(b"".join(new.values()), np.float32).reshape(len(new), -1)
        before = 0 if self._index is None else len(self._index)
        self._row_of.update((digest, before + place) for place, digest in enumerate(new))
        if self._index is None:
            self._index = VectorIndex(rows)
        else:
            self._index.add(rows)

    def missing(self, digests: Iterable[bytes]) -> set[bytes]:
        """Return which of these hashes have no vector."""
        return {digest for digest in digests if digest not in self._row_of}

    def align(self, digests: Sequence[bytes]) -> None:
        """Follow a corpus: the hash by slot, empty where a tool was dropped."""
        if self._index is not None and len(self._index) > 2 * len(digests):
            self._index = self._without_others(self._index, set(digests))
        rows = np.asarray([self._row_of.get(digest, -1) for digest in digests], np.int64)
        self.known = rows >= 0
        self._rows = np.where(self.known, rows, 0)

    def _without_others(self, index: VectorIndex, digests: set[bytes]) -> VectorIndex:
        used = {digest: row for digest, row in self._row_of.items() if digest in digests}
        self._row_of = {digest: row for row, digest in enumerate(used)}
        return VectorIndex(index.take(np.asarray(list(used.values()), np.int64)))

    def vectors(self, slots: NDArray[np.int64] | None = None) -> Floats | None:
        """Return the vectors of these slots, or of every one, (slots, dimension), 0 where there is no vector; None
        while there is none at all."""
        rows, known = (self._rows, self.known) if slots is None else (self._rows[slots], self.known[slots])
        if self._index is None or not len(rows):
            return None
        found = self._index.take(rows)
        found[~known] = 0.0
        return found

    def nearness(self, vectors: Floats, slots: NDArray[np.int64] | None = None) -> Floats:
        """Cosine of each of (texts, dimension) to these slots, or to every one; (texts, slots), 0 where there is no
        vector."""
        rows, known = (self._rows, self.known) if slots is None else (self._rows[slots], self.known[slots])
        if self._index is None or not len(rows):
            return np.zeros((len(vectors), len(rows)), np.float32)
        return np.where(known, self._index.products(vectors, rows), np.float32(0))


class DenseEnsemble:
    """The encoders over one corpus; sums their scores with those of the words."""

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        self.heads = [Dense(encoder) for encoder in encoders]
        self.names = "+".join(head.name for head in self.heads)
        """The names of the encoders, joined by `+`."""
        self.live: NDArray[np.bool_] = np.empty(0, np.bool_)
        """(slots,): which hold a tool."""
        self.version = -1
        """The version of the corpus that `align` saw last."""
        self._siblings = Siblings()

    def align(self, digests: Sequence[bytes], version: int, servers: Sequence[Sequence[int]] = ()) -> None:
        """Follow a corpus, given as the hash by slot and the slots of each server."""
        self.version = version
        self._siblings = Siblings(servers)
        self.live = np.asarray([bool(digest) for digest in digests], np.bool_)
        for head in self.heads:
            head.align(digests)

    @property
    def is_ready(self) -> bool:
        """Whether there are enough tools with a vector to compare."""
        return all(head.known.sum() >= _FEWEST_TOOLS for head in self.heads)

    @property
    def is_whole(self) -> bool:
        """Whether nearly all tools have a vector."""
        return self.is_ready and all(head.known.sum() >= _NEARLY_ALL * self.live.sum() for head in self.heads)

    @property
    def is_complete(self) -> bool:
        """Whether every tool has a vector."""
        return self.is_ready and all(head.known.sum() >= self.live.sum() for head in self.heads)

    def nearness(self, readings: Sequence[Reading], slots: Sequence[int]) -> Floats:
        """Return the cosine of each text to some slots, the mean over the encoders; (texts, slots)."""
        places = np.asarray(slots, np.int64)
        each = [head.nearness(np.stack([one[at] for one in readings]), places) for at, head in enumerate(self.heads)]
        mean: Floats = np.mean(each, axis=0)
        return mean

    def alike(self, slots: Sequence[int], following: int) -> list[float]:
        """Return for each slot the highest cosine of its tool to one of the next `following` slots, the mean over the
        encoders; 0 where nothing follows."""
        places = np.asarray(slots, np.int64)
        vectors = [found for head in self.heads if (found := head.vectors(places)) is not None]
        if not vectors:
            return [0.0] * len(slots)
        near = np.mean([each @ each.T for each in vectors], axis=0)
        return [float(row[at + 1 : at + 1 + following].max(initial=0.0)) for at, row in enumerate(near)]

    def readings(self, texts: Sequence[str]) -> list[Reading]:
        """Return the vectors of each text by all encoders."""
        return list(zip(*(head.encoder.queries(texts) for head in self.heads), strict=True))

    def sums(
        self, hits: Sequence[Mapping[int, float]], readings: Sequence[Reading], telling: Sequence[float] = ()
    ) -> list[ScoreSum]:
        """Return one sum for each text, given what the words score by slot, the text's vectors, and how much its words
        decide (`Lexical.telling_share`; 1 where it is not given)."""
        # By encoder, each (texts, slots).
        cosines = [head.nearness(np.stack([each[place] for each in readings])) for place, head in enumerate(self.heads)]
        shares = telling or [1.0] * len(hits)
        return [
            self._sum(hit, share, [each[place] for each in cosines])
            for place, (hit, share) in enumerate(zip(hits, shares, strict=True))
        ]

    def _sum(self, hits: Mapping[int, float], telling: float, cosines: Sequence[Floats]) -> ScoreSum:
        words = by_slot(hits, len(self.live))
        weight = np.float32(weight_of(self.names))
        by_words = z_scores(words**_SHARPNESS, self.live)
        parts = {"lexical": np.float32(_LEXICAL * telling) * by_words}
        for head, values in zip(self.heads, cosines, strict=True):
            near = z_scores(values, self.live & head.known)
            unread = self.live & ~head.known
            parts[head.name] = weight * np.where(unread, np.minimum(by_words, np.float32(UNREAD_MOST)), near)
        if (lifts := self._siblings.lifts(total_of(parts, self.live))) is not None:
            parts["siblings"] = lifts
        total = total_of(parts, self.live)
        return ScoreSum(total, parts, Nearness(self.names, tuple(float(values.max()) for values in cosines)))


SOFTNESS = 2.0
"""In units of a score: at 0 a server would count as its best tool, far above as its average one."""
SHARE = 0.6
"""What a server's mean counts beside a tool's own score."""
MOST = 0.7
"""What a server adds to a tool at most: as much as one standard deviation of an encoder."""
_HIGHEST = 60.0
"""Scores above this count as this, so that no exponential overflows."""


class Siblings:
    """Knows which slots belong to one server."""

    def __init__(self, servers: Sequence[Sequence[int]] = ()) -> None:
        """`servers`: the slots of each server that has any."""
        filled = [slots for slots in servers if slots]
        self._sizes = np.asarray([len(slots) for slots in filled], np.int64)
        self._slots: NDArray[np.int64] = np.asarray([slot for slots in filled for slot in slots], np.int64)
        self._starts = np.cumsum(self._sizes) - self._sizes

    def lifts(self, total: Floats) -> Floats | None:
        """Return what to add to (slots,) scores, 0 to `MOST`; None where there are no two servers to compare."""
        if len(self._sizes) < 2:
            return None
        fit = np.exp(np.minimum(total[self._slots], _HIGHEST) / SOFTNESS)  # 0 for a dropped tool
        means = SHARE * SOFTNESS * np.log(np.add.reduceat(fit, self._starts) / self._sizes + 1e-30)
        found = np.zeros_like(total)
        found[self._slots] = np.repeat(np.maximum(means - means.max() + MOST, 0.0), self._sizes)
        return found
