"""Meaning: the cosine of a query to every tool, exact, by one or two encoders, and the sum of everything known.

ITR eq. 3 with one difference: each list is z-scored over the whole pool before it is weighted. A list with one sharp
hit then has a large z and wins, a flat one is nearly mute; ranks, cosines and BM25 need no common scale, and nobody has
to tune weights per catalogue. Weights were fitted on stabletoolbench, toole and bfcl_ports, then rounded.

Imports numpy and faiss, 30 MB: only who has an encoder imports this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import faiss
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.retrieval.encoders import Encoder
from foretool.retrieval.fusion import LEVELLING, WHOLE
from foretool.retrieval.ranking import Signs

Floats = NDArray[np.float32]

LEXICAL = 0.35
"""What a standard deviation of the words counts."""
ALONE, TOGETHER = 0.70, 0.65
"""What one of an encoder counts, where there is one and where there are more."""
LEAST_COVERED = 0.9
"""Share of the tools that must have a vector before meaning is asked at all."""
FEWEST_TOOLS = 4
"""Among fewer a z-score says nothing."""
DEPTH = 50
"""How many of the best scores the entropy of a list is taken over."""
AGREEMENT = 5
"""How many of the best of each list are compared."""


class Dense:
    """Cosine of a query to every slot, by one encoder; vectors are known by the hash of the text they stand for."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._index: Any = None  # faiss.IndexFlatIP (rows, dimension), exact
        self._row_of: dict[bytes, int] = {}
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)  # (slots,), 0 where there is no vector
        self.known: NDArray[np.bool_] = np.empty(0, np.bool_)
        """(slots,): which have a vector."""

    @property
    def name(self) -> str:
        return self.encoder.name

    def add(self, vectors: Mapping[bytes, bytes]) -> None:
        """Take in vectors by the hash of their text, each as the bytes of float32."""
        new = {digest: data for digest, data in vectors.items() if digest not in self._row_of}
        if not new:
            return
        # As (new, dimension).
        rows = np.frombuffer(b"".join(new.values()), np.float32).reshape(len(new), -1)
        if self._index is None:
            self._index = faiss.IndexFlatIP(rows.shape[1])
        self._row_of.update((digest, self._index.ntotal + place) for place, digest in enumerate(new))
        self._index.add(rows)

    def missing(self, digests: Iterable[bytes]) -> set[bytes]:
        """The hashes whose vectors are not here."""
        return {digest for digest in digests if digest not in self._row_of}

    def align(self, digests: Sequence[bytes]) -> list[bytes]:
        """Follow a corpus: the hash by slot, empty where a tool was dropped. Returns the hashes without a vector."""
        rows = [self._row_of.get(digest, -1) for digest in digests]
        found = np.asarray(rows, np.int64)
        self.known = found >= 0
        self._rows = np.where(self.known, found, 0)
        return list({digest for digest, row in zip(digests, rows, strict=True) if digest and row < 0})

    def shrink(self) -> None:
        """Forget vectors that no slot stands for."""
        if self._index is None or self._index.ntotal <= 2 * len(self._rows):
            return
        used = np.unique(self._rows[self.known])
        kept = self._index.reconstruct_batch(used)
        number = dict(zip(used.tolist(), range(len(used)), strict=True))
        self._row_of = {digest: number[row] for digest, row in self._row_of.items() if row in number}
        self._index = faiss.IndexFlatIP(kept.shape[1])
        self._index.add(kept)

    def cosines(self, texts: Sequence[str]) -> Floats:
        """(texts, slots); 0 where there is no vector."""
        queries = np.ascontiguousarray(self.encoder.queries(texts))
        found = np.zeros((len(texts), len(self._rows)), np.float32)
        if self._index is None or not len(self._rows):
            return found
        rows = np.ascontiguousarray(np.broadcast_to(self._rows, found.shape))
        # Not `search`, which sorts: every slot is wanted, in its own order.
        self._index.compute_distance_subset(
            len(texts), faiss.swig_ptr(queries), found.shape[1], faiss.swig_ptr(found), faiss.swig_ptr(rows)
        )
        return np.where(self.known, found, np.float32(0))


class Blend(Struct, frozen=True):
    """Every tool's score for one text, with what each ranker added."""

    total: Floats
    """(slots,); -inf where a tool was dropped."""
    parts: dict[str, Floats]
    """(slots,) each; they add up to `total`."""
    signs: Signs

    def best(
        self, limit: int, boosts: Mapping[int, float], names: Sequence[object]
    ) -> tuple[list[tuple[int, float]], int]:
        """The slots of the highest scores with their score, equals by name, and how many are above the average."""
        total = self.total.astype(np.float64)
        for slot, boost in boosts.items():
            total[slot] += boost
        fitting = np.flatnonzero(total > 0)
        head = fitting
        if len(fitting) > limit > 0:
            least = -np.partition(-total[fitting], limit - 1)[limit - 1]
            head = fitting[total[fitting] >= least]
        order = sorted((-float(total[slot]), str(names[slot]), slot) for slot in head.tolist())
        return [(slot, -score) for score, _, slot in order[:limit]], len(fitting)

    def of(self, slot: int) -> dict[str, float]:
        """What each ranker added to one tool."""
        return {name: float(part[slot]) for name, part in self.parts.items()}


class Meaning:
    """The encoders over one corpus, and how their scores and those of the words become one."""

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        self.heads = [Dense(encoder) for encoder in encoders]
        self.live: NDArray[np.bool_] = np.empty(0, np.bool_)
        """(slots,): which hold a tool."""
        self.version = -1
        """Of the corpus that was last followed."""

    def align(self, digests: Sequence[bytes], version: int) -> dict[str, list[bytes]]:
        """Follow a corpus; returns the hashes without a vector, by encoder."""
        self.version = version
        self.live = np.asarray([bool(digest) for digest in digests], np.bool_)
        missing = {head.name: head.align(digests) for head in self.heads}
        for head in self.heads:
            head.shrink()
            head.align(digests)
        return missing

    @property
    def is_ready(self) -> bool:
        """Whether nearly all tools have a vector, and there are enough of them."""
        tools = int(self.live.sum())
        return tools >= FEWEST_TOOLS and all(head.known.sum() >= LEAST_COVERED * tools for head in self.heads)

    @staticmethod
    def fused(lines: Sequence[Blend], whole: Blend, names: Sequence[object]) -> Blend:
        """One blend for several lines."""
        return fuse_lines(lines, whole, names)

    def blends(self, texts: Sequence[str], hits: Sequence[Mapping[int, float]]) -> list[Blend]:
        """One blend a text; `hits`: what the words score, by slot."""
        # By encoder, each (texts, slots).
        cosines = [head.cosines(texts) for head in self.heads]
        return [self._blend(hit, [each[place] for each in cosines]) for place, hit in enumerate(hits)]

    def _blend(self, hits: Mapping[int, float], cosines: Sequence[Floats]) -> Blend:
        words = np.zeros(len(self.live), np.float32)
        words[np.fromiter(hits, np.int64, len(hits))] = np.fromiter(hits.values(), np.float32, len(hits))
        weight = np.float32(ALONE if len(self.heads) == 1 else TOGETHER)
        parts = {"lexical": np.float32(LEXICAL) * standard(words, self.live)}
        for head, values in zip(self.heads, cosines, strict=True):
            # A tool without a vector is an average one.
            parts[head.name] = weight * standard(values, self.live & head.known)
        total = _sum(parts)
        total[~self.live] = -np.inf
        return Blend(total, parts, self._signs(total, words, cosines))

    def _signs(self, total: Floats, words: Floats, cosines: Sequence[Floats]) -> Signs:
        best = -np.sort(-head(total, DEPTH))
        tops = [leaders(values, AGREEMENT) for values in (np.where(words > 0, words, -np.inf), *cosines)]
        shared = [len(a & b) / AGREEMENT for at, a in enumerate(tops) for b in tops[at + 1 :]]
        odds = np.exp(best - best[0])
        odds /= odds.sum()
        return Signs(
            encoders="+".join(each.name for each in self.heads),
            top=float(best[0]),
            margin=float(best[0] - best[1]) if len(best) > 1 else 0.0,
            entropy=float(-(odds * np.log(np.maximum(odds, 1e-12))).sum()),
            overlap=float(np.mean(shared)),
            cosines=tuple(float(values.max()) for values in cosines),
        )


def standard(scores: Floats, pool: NDArray[np.bool_]) -> Floats:
    """z-scores over a pool, 0 outside of it and where all are equal; (slots,)."""
    values = scores[pool]
    if not len(values) or (deviation := values.std()) < 1e-6:
        return np.zeros_like(scores)
    return np.where(pool, (scores - values.mean()) / deviation, np.float32(0))


def head(scores: Floats, size: int) -> Floats:
    """The best finite scores, in no order."""
    values = scores[np.isfinite(scores)]
    return values if len(values) <= size else np.partition(values, len(values) - size)[-size:]


def leaders(scores: Floats, size: int) -> set[int]:
    """The slots of the best finite scores."""
    size = min(size, len(scores))
    if not size:
        return set()
    return {slot for slot in np.argpartition(-scores, size - 1)[:size].tolist() if np.isfinite(scores[slot])}


def fuse_lines(lines: Sequence[Blend], whole: Blend, names: Sequence[object]) -> Blend:
    """`fusion.fuse_lines` over sums of z-scores: what is below the average of the pool counts as no hit.

    A tool has what it has in its best line plus what it has in all lines read as one; the best tool of each line comes
    first, of equals the first by `names` (slots,).
    """
    told = [(blend, level) for blend in lines if (level := _level(blend)) is not None]
    best, source = np.zeros_like(whole.total), np.full(len(whole.total), -1)
    for number, (_, (_, hits)) in enumerate(told):
        source = np.where(hits > best, number, source)
        best = np.maximum(hits, best)
    parts = {name: np.zeros_like(whole.total) for name in whole.parts}
    for number, (blend, (scale, _)) in enumerate(told):
        _add(parts, blend, scale, source == number)
    if (level := _level(whole)) is not None:
        _add(parts, whole, WHOLE * level[0], level[1] > 0)
    total = _sum(parts)
    first = np.float32(total.max(initial=0.0))
    parts["line"] = np.zeros_like(total)
    for _, (_, hits) in told:
        leader = min(np.flatnonzero(hits == hits.max()).tolist(), key=lambda slot: (-total[slot], str(names[slot])))
        parts["line"][leader] = first
    total = total + parts["line"]
    total[~np.isfinite(whole.total)] = -np.inf
    return Blend(total, parts, whole.signs)


def _add(parts: dict[str, Floats], blend: Blend, scale: float, where: NDArray[np.bool_]) -> None:
    for name, part in blend.parts.items():
        parts[name] += np.where(where, np.float32(scale) * part, np.float32(0))


def _sum(parts: Mapping[str, Floats]) -> Floats:
    total: Floats = np.sum(list(parts.values()), axis=0, dtype=np.float32)
    return total


def _level(blend: Blend) -> tuple[float, Floats] | None:
    """What a line is multiplied by so that lines compare (`fusion.levelled`), and its scaled hits; None without any."""
    hits = np.where(np.isfinite(blend.total), np.maximum(blend.total, 0), np.float32(0))
    top, pool = float(hits.max(initial=0.0)), np.isfinite(blend.total)
    if top <= 0.0:
        return None
    scale = 1.0 / (max(float(hits[pool].std()), 1e-9) ** (1.0 - LEVELLING) * top**LEVELLING)
    return scale, np.float32(scale) * hits
