"""Sums of z-scores over a corpus, part by part: what the encoders and what was learned bring into one score.

The arithmetic behind `rankers.dense` and `rankers.experience`, and `fusion` for arrays. Imports numpy: only who has an
encoder or a model imports this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.retrieval.ranking import Signs
from foretool.retrieval.score_fusion import LEVELLING, WHOLE

Floats = NDArray[np.float32]

MOST_WELCOMED = 10
"""Tools that nothing was learned of and that are lifted all the same."""


class Blend(Struct, frozen=True):
    """Every tool's score for one text, with what each ranker added."""

    total: Floats
    """(slots,); -inf where a tool was dropped."""
    parts: dict[str, Floats]
    """(slots,) each; they add up to `total`."""
    signs: Signs | None = None
    """How the list looks to the gate; None where no encoder took part."""

    def plus(self, parts: Mapping[str, Floats]) -> Blend:
        """With more parts; a dropped tool stays dropped, the signs stay what they were without them."""
        return Blend(self.total + total_of(parts), {**self.parts, **parts}, self.signs) if parts else self

    def scaled(self, factors: Mapping[str, float]) -> Blend:
        """With each part multiplied by its factor, 1 where it has none."""
        if not any(factors.get(name, 1.0) != 1.0 for name in self.parts):
            return self
        parts = {name: np.float32(factors.get(name, 1.0)) * part for name, part in self.parts.items()}
        return Blend(total_of(parts, np.isfinite(self.total)), parts, self.signs)

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


def softmax(logits: Floats) -> Floats:
    """Over the last axis."""
    raised: Floats = np.exp(logits - logits.max(-1, keepdims=True))
    raised /= raised.sum(-1, keepdims=True)
    return raised


def standard(scores: Floats, pool: NDArray[np.bool_]) -> Floats:
    """z-scores over a pool, 0 outside of it and where all are equal; (slots,)."""
    values = scores[pool]
    if not len(values) or (deviation := values.std()) < 1e-6:
        return np.zeros_like(scores)
    return np.where(pool, (scores - values.mean()) / deviation, np.float32(0))


def foremost(scores: Floats, size: int) -> Floats:
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
    # What was learned may have something to say of one line and nothing of another.
    parts = {name: np.zeros_like(whole.total) for blend in (whole, *lines) for name in blend.parts}
    for number, (blend, (scale, _)) in enumerate(told):
        _add(parts, blend, scale, source == number)
    if (level := _level(whole)) is not None:
        _add(parts, whole, WHOLE * level[0], level[1] > 0)
    total = total_of(parts)
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


def welcomed(total: Floats, base: Floats, new: NDArray[np.bool_], share: float) -> dict[int, float]:
    """What to add to tools that a model has never seen, by slot, so that `share` of the places is theirs.

    Only those that are contenders without it (`base`): at least half of the best. The first of them comes after at most
    1 / share - 1 of the others, the second after twice as many.
    """
    alive = np.isfinite(total)
    others = -np.sort(-total[alive & ~new])
    contenders = np.flatnonzero(alive & new & (base > 0) & (base >= 0.5 * base[alive].max(initial=0.0)))
    found: dict[int, float] = {}
    for place, slot in enumerate(sorted(contenders.tolist(), key=lambda slot: -base[slot])[:MOST_WELCOMED], 1):
        after = int(np.ceil(place / share)) - place
        if after < len(others) and (lift := float(others[after]) + 1e-3 - float(total[slot])) > 0.0:
            found[slot] = lift
    return found


def total_of(parts: Mapping[str, Floats], live: NDArray[np.bool_] | None = None) -> Floats:
    """(slots,); -inf outside of `live`."""
    total: Floats = np.sum(list(parts.values()), axis=0, dtype=np.float32)
    if live is not None:
        total[~live] = -np.inf
    return total


def by_slot(hits: Mapping[int, float], size: int) -> Floats:
    """Scores of some slots as (size,), 0 for the others."""
    found = np.zeros(size, np.float32)
    found[np.fromiter(hits, np.int64, len(hits))] = np.fromiter(hits.values(), np.float32, len(hits))
    return found


def _level(blend: Blend) -> tuple[float, Floats] | None:
    """What a line is multiplied by so that lines compare (`fusion.levelled`), and its scaled hits; None without any."""
    hits = np.where(np.isfinite(blend.total), np.maximum(blend.total, 0), np.float32(0))
    top, pool = float(hits.max(initial=0.0)), np.isfinite(blend.total)
    if top <= 0.0:
        return None
    scale = 1.0 / (max(float(hits[pool].std()), 1e-9) ** (1.0 - LEVELLING) * top**LEVELLING)
    return scale, np.float32(scale) * hits
