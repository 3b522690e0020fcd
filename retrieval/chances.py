"""Says how probable it is that a task needs each tool of a ranking.

The probability is logistic in the place, the score and its parts; `confidence` has the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from operator import mul

from foretool.retrieval.calibration import sigmoid
from foretool.retrieval.ranking import Ranked

FEATURES = ("place", "behind", "best", "found", "tasks", "history", "new", "bias")
"""What the probability of a ranked tool is computed from: the logarithm of its rank, how far its score is behind the
best one, the logarithm of the best one, its score from words and meaning, what three learned parts gave it, and 1.
Parts that are added into one score are read as a share of the best score, which models that believe in themselves more
with every run move by tens."""
_UNIT, LEAST_BEST = 5.0, 3.0
"""The unit of such a share, and the least best score that it is a share of."""
LEARNED = ("tasks", "history", "new", "graph", "trained")
"""Parts of a score that models add; the rest is words, meaning, names and usage."""
_LEARNED = frozenset(LEARNED)


def gains(weights: Sequence[float], ranked: Sequence[Ranked]) -> list[float]:
    """Return the probability that the task needs each tool of a ranking; `weights`: one for each of `FEATURES`."""
    if not all(_LEARNED.isdisjoint(each.parts) for each in ranked):
        return [sigmoid(sum(map(mul, weights, each))) for each in chance_features(ranked)]
    # Without learned parts the same sums have three terms fewer, which are 0.
    best, unit, size = _scale(ranked)
    place, behind, high, found, *_, bias = weights
    high *= size
    return [
        sigmoid(sum((place * log(rank), behind * (unit * (score - best)), high, found * score, bias)))
        for rank, score in enumerate([each.score for each in ranked], 1)
    ]


def _scale(ranked: Sequence[Ranked]) -> tuple[float, float, float]:
    """Return the best score, the unit of shares of it, and its logarithm."""
    best = ranked[0].score if ranked else 0.0
    return best, _UNIT / max(best, LEAST_BEST), log(1.0 + max(best, 0.0))


def chance_features(ranked: Sequence[Ranked]) -> list[tuple[float, ...]]:
    """Return the `FEATURES` of each tool of a ranking, best first."""
    best, unit, size = _scale(ranked)
    return [
        (
            log(rank), unit * (each.score - best), size,
            each.score - sum(each.parts.get(part, 0.0) for part in LEARNED),
            unit * each.parts.get("tasks", 0.0), each.parts.get("history", 0.0), unit * each.parts.get("new", 0.0), 1.0,
        )
        if not _LEARNED.isdisjoint(each.parts)
        else (log(rank), unit * (each.score - best), size, each.score, 0.0, 0.0, 0.0, 1.0)
        for rank, each in enumerate(ranked, 1)
    ]  # fmt: skip
