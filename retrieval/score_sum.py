"""Sums of z-scores over a corpus, part by part: how encoders and learned models become one score with the words.

This module imports numpy: only a process with an encoder or a model imports it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.retrieval.model_format import Floats
from foretool.retrieval.ranking import WHOLE, Nearness, leader, level_scale

LEAD = 1.0
"""What the best tool of a clause gains, and that of the task as a whole."""
_SECOND = 0.5
"""What the second best tool of a clause gains."""
_MOST_LIFTED = 10
"""How many tools that no training has seen are lifted."""


class ScoreSum(Struct, frozen=True):
    """The score of every tool for one text, with what each ranker added to it."""

    total: Floats
    """(slots,); -inf where a tool was dropped."""
    parts: dict[str, Floats]
    """(slots,) each; they add up to `total`."""
    nearness: Nearness | None = None
    """How near the nearest tool is; None where no encoder took part."""

    @property
    def live(self) -> NDArray[np.bool_]:
        """Return which slots hold a tool (slots,)."""
        return np.isfinite(self.total)

    def plus(self, parts: Mapping[str, Floats]) -> ScoreSum:
        """Add more parts. A dropped tool stays dropped."""
        return ScoreSum(self.total + total_of(parts), {**self.parts, **parts}, self.nearness) if parts else self

    def lifted(self, part: str, lifts: Mapping[int, float]) -> ScoreSum:
        """Return a sum with one more part, which adds to some slots."""
        return self.plus({part: by_slot(lifts, len(self.total))}) if lifts else self

    def lowered(self, part: str, slots: Collection[int], share: float) -> ScoreSum:
        """Multiply the above-average scores of these slots by `share`; the loss is a part of its own."""
        at = np.fromiter(slots, np.int64, len(slots))
        at = at[self.total[at] > 0]
        if not len(at):
            return self
        lost = np.zeros_like(self.total)
        lost[at] = np.float32(share - 1.0) * self.total[at]
        return self.plus({part: lost})

    def scaled(self, factors: Mapping[str, float]) -> ScoreSum:
        """Multiply each part by its factor, 1 where it has none."""
        if not any(factors.get(name, 1.0) != 1.0 for name in self.parts):
            return self
        parts = {name: np.float32(factors.get(name, 1.0)) * part for name, part in self.parts.items()}
        return ScoreSum(total_of(parts, np.isfinite(self.total)), parts, self.nearness)

    def best(
        self, limit: int, boosts: Mapping[int, float], names: Sequence[object]
    ) -> tuple[list[tuple[int, float]], int]:
        """Return the slots with the highest scores, boosts included, equal ones by name, and how many are above
        average."""
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
        """Return what each ranker added to one tool."""
        return {name: float(part[slot]) for name, part in self.parts.items()}


def sum_words(hits: Mapping[int, float], live: NDArray[np.bool_]) -> ScoreSum:
    """Return the sum of the words alone; `live` (slots,) says which slots hold a tool."""
    words = z_scores(by_slot(hits, len(live)), live)
    return ScoreSum(total_of({"lexical": words}, live), {"lexical": words})


def best_of(sums: Sequence[ScoreSum]) -> Floats:
    """Return the best score of each slot in any sum, 0 where none is above the average; (slots,)."""
    found: Floats = np.maximum(np.max([each.total for each in sums], axis=0), np.float32(0))
    return found


def softmax(logits: Floats) -> Floats:
    """Softmax over the last axis."""
    # The methods `max` and `sum` take a detour through Python, which costs as much as the sum.
    raised: Floats = logits - np.maximum.reduce(logits, -1, keepdims=True)
    np.exp(raised, out=raised)
    raised /= np.add.reduce(raised, -1, keepdims=True)
    return raised


def z_scores(scores: Floats, pool: NDArray[np.bool_] | None = None) -> Floats:
    """Return how many standard deviations each score is above the mean of the pool; 0 outside the pool and where all
    are equal; (slots,)."""
    values = scores if pool is None else scores[pool]
    if not len(values) or (deviation := values.std()) < 1e-6:
        return np.zeros_like(scores)
    scaled: Floats = (scores - values.mean()) / deviation
    return scaled if pool is None else np.where(pool, scaled, np.float32(0))


def fuse_sums(lines: Sequence[ScoreSum], whole: ScoreSum, names: Sequence[object]) -> ScoreSum:
    """Fuse the sums of several lines as `ranking.fuse_lines` does; only scores above the average count as hits.
    `names` (slots,) decides between equals."""
    levels = [(each, level) for each in lines if (level := _level(each)) is not None]
    highest, source = np.zeros_like(whole.total), np.full(len(whole.total), -1)
    for number, (_, (_, hits)) in enumerate(levels):
        source = np.where(hits > highest, number, source)
        highest = np.maximum(hits, highest)
    # A learned model may have something to say about one line and nothing about another.
    parts = {name: np.zeros_like(whole.total) for each in (whole, *lines) for name in each.parts}
    for number, (each, (scale, _)) in enumerate(levels):
        _add(parts, each, scale, source == number)
    if (level := _level(whole)) is not None:
        _add(parts, whole, WHOLE * level[0], level[1] > 0)
    total = total_of(parts)
    first = np.float32(total.max(initial=0.0))
    parts["line"] = np.zeros_like(total)
    for _, (_, hits) in levels:
        best = np.flatnonzero(hits == hits.max()).tolist()
        parts["line"][leader(best, total.__getitem__, lambda slot: str(names[slot]))] = first
    total = total + parts["line"]
    total[~np.isfinite(whole.total)] = -np.inf
    return ScoreSum(total, parts, whole.nearness)


def cover_clauses(whole: ScoreSum, clauses: Sequence[ScoreSum], names: Sequence[object]) -> ScoreSum:
    """Add to each tool what its best clause says, all clauses brought halfway to one height, and `LEAD` to the best
    tool of each clause and of the whole, half of it to the second of each clause, so that every need gets its tool
    before one need gets five. `names` (slots,) decides between equals."""
    hits = [np.maximum(each.total, np.float32(0)) for each in clauses]
    tops = [float(each.max(initial=0.0)) for each in hits]
    if not any(tops):
        return whole
    middle = float(np.median([top for top in tops if top]))
    level = [each * np.float32((middle / top) ** 0.5) for each, top in zip(hits, tops, strict=True) if top]
    parts = {"clauses": np.max(level, axis=0)}
    total = whole.total + parts["clauses"]
    first = [_best_slot(each, total, names) for each in level]
    lead = np.zeros_like(total)
    for each, best in zip(level, first, strict=True):
        others = each.copy()
        others[best] = 0
        if others.max() > 0:
            lead[_best_slot(others, total, names)] = _SECOND
    lead[first] = LEAD
    lead[_best_slot(whole.total, total, names)] += LEAD
    return whole.plus({**parts, "line": lead})


def _best_slot(scores: Floats, total: Floats, names: Sequence[object]) -> int:
    best = np.flatnonzero(scores == scores.max()).tolist()
    return leader(best, total.__getitem__, lambda slot: str(names[slot]))


def newcomer_lifts(total: Floats, base: Floats, new: NDArray[np.bool_], share: float) -> dict[int, float]:
    """Return what to add to tools that no training has seen, by slot, so that `share` of the places is theirs. Only
    contenders are lifted: tools whose score without learned parts (`base`) is at least half of the best. The first of
    them comes after at most 1 / share - 1 of the others, the second after twice as many."""
    alive = np.isfinite(total)
    others = -np.sort(-total[alive & ~new])
    contenders = np.flatnonzero(alive & new & (base > 0) & (base >= 0.5 * base[alive].max(initial=0.0)))
    found: dict[int, float] = {}
    for place, slot in enumerate(sorted(contenders.tolist(), key=lambda slot: -base[slot])[:_MOST_LIFTED], 1):
        after = int(np.ceil(place / share)) - place
        if after < len(others) and (lift := float(others[after]) + 1e-3 - float(total[slot])) > 0.0:
            found[slot] = lift
    return found


def total_of(parts: Mapping[str, Floats], live: NDArray[np.bool_] | None = None) -> Floats:
    """Return the sum of the parts; -inf outside of `live`; (slots,)."""
    total: Floats = np.sum(list(parts.values()), axis=0, dtype=np.float32)
    if live is not None:
        total[~live] = -np.inf
    return total


def by_slot(hits: Mapping[int, float], size: int) -> Floats:
    """Return the scores of some slots as (size,), 0 for the others."""
    found = np.zeros(size, np.float32)
    found[np.fromiter(hits, np.int64, len(hits))] = np.fromiter(hits.values(), np.float32, len(hits))
    return found


def _add(parts: dict[str, Floats], summed: ScoreSum, scale: float, where: NDArray[np.bool_]) -> None:
    for name, part in summed.parts.items():
        parts[name] += np.where(where, np.float32(scale) * part, np.float32(0))


def _level(summed: ScoreSum) -> tuple[float, Floats] | None:
    """Return the level scale of a line and its scaled hits; None without a hit."""
    hits = np.where(np.isfinite(summed.total), np.maximum(summed.total, 0), np.float32(0))
    top, pool = float(hits.max(initial=0.0)), np.isfinite(summed.total)
    if top <= 0.0:
        return None
    scale = level_scale(float(hits[pool].std()), top)
    return scale, np.float32(scale) * hits
