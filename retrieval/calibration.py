"""Compares probabilities with what happened: how far off they are, how to correct them, and how many tools to show."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, log

from msgspec import Struct

Outcome = tuple[float, float]
"""A stated probability, and 1 if it came true, else 0."""

_BINS = 10
_EDGE = 1e-3
"""Probabilities nearer to 0 or 1 than this count as this near."""
_STEPS = 25
_SHIFT_PRIOR, _SLOPE_PRIOR = 4.0, 30.0
"""The inverse variances by which the map is drawn to no change: about what 20 outcomes tell of the shift and 100 of the
slope, which two or three surprises would otherwise turn."""
_MOST = 10.0
"""The largest slope and shift."""


class Platt(Struct, frozen=True):
    """Maps stated probabilities to true ones: sigmoid(slope logit(p) + shift). The default changes nothing."""

    slope: float = 1.0
    shift: float = 0.0

    def __call__(self, probability: float) -> float:
        return sigmoid(self.slope * logit(probability) + self.shift)


class Recalibration(Struct, frozen=True):
    """Corrects the gate's probabilities by the outcomes of earlier searches. The default changes nothing."""

    first: Platt = Platt()
    """For the probability that the first tool is right."""
    shown: Platt = Platt()
    """For the probability that a needed tool is among the first k, for a k above 1."""

    def among(self, k: int, probability: float) -> float:
        """Correct a stated probability that a needed tool is among the first k."""
        return (self.first if k == 1 else self.shown)(probability)


AS_SHIPPED = Recalibration()


def platt(outcomes: Sequence[Outcome]) -> Platt:
    """Fit a logistic regression on the log-odds (Platt 1999) by Newton's method. A normal prior draws it towards no
    change, so that a few outcomes move little. The slope never reverses the order."""
    said = [(logit(probability), true) for probability, true in outcomes]
    slope, shift = 1.0, 0.0
    for _ in range(_STEPS):
        down, across = _SLOPE_PRIOR * (slope - 1.0), _SHIFT_PRIOR * shift
        h11, h12, h22 = _SLOPE_PRIOR, 0.0, _SHIFT_PRIOR
        for x, true in said:
            p = sigmoid(slope * x + shift)
            down += (p - true) * x
            across += p - true
            weight = p * (1.0 - p)
            h11 += weight * x * x
            h12 += weight * x
            h22 += weight
        determinant = h11 * h22 - h12 * h12
        before = slope, shift
        slope -= (h22 * down - h12 * across) / determinant
        shift -= (h11 * across - h12 * down) / determinant
        slope, shift = max(min(slope, _MOST), 0.0), max(min(shift, _MOST), -_MOST)
        if (slope, shift) == before:
            break  # every further step would change nothing
    return Platt(slope, shift)


def logit(probability: float) -> float:
    """Return the logarithm of the odds; probabilities within `_EDGE` of 0 and 1 count as `_EDGE` away."""
    kept = max(min(probability, 1.0 - _EDGE), _EDGE)
    return log(kept / (1.0 - kept))


def sigmoid(logit: float) -> float:
    return 1.0 / (1.0 + exp(-max(min(logit, 30.0), -30.0)))


def calibration_error(outcomes: Sequence[Outcome]) -> float:
    """Expected calibration error over ten equal bins, 0 to 1; 0 for no outcomes."""
    return sum(abs(said - true) * count for said, true, count in reliability(outcomes)) / max(len(outcomes), 1)


def reliability(outcomes: Sequence[Outcome]) -> list[tuple[float, float, int]]:
    """Return for each bin that is not empty: the mean stated probability, the share that came true, and the count."""
    bins: list[list[Outcome]] = [[] for _ in range(_BINS)]
    for said, true in outcomes:
        bins[min(int(said * _BINS), _BINS - 1)].append((said, true))
    return [(sum(a for a, _ in one) / len(one), sum(b for _, b in one) / len(one), len(one)) for one in bins if one]


def conformal_k(ranks: Sequence[int | None], eps: float) -> int | None:
    """Return how many tools to show so that a needed one is hidden with a probability of at most `eps`: the ceil((n +
    1)(1 - eps))-th smallest of n ranks (split conformal prediction, Vovk et al. 2005). It holds for the next query if
    queries come in no particular order. A rank of None lies beyond every list. Returns None if no k suffices, or if
    there are too few outcomes to say."""
    place = ceil((len(ranks) + 1) * (1.0 - eps))
    known = sorted(rank for rank in ranks if rank is not None)
    return known[place - 1] if 0 < place <= len(known) else None


def coverage(ranks: Sequence[int | None], k: int) -> float:
    """Share of the needed tools among the first k, 0 to 1; 1 where none was needed."""
    return sum(rank is not None and rank <= k for rank in ranks) / len(ranks) if ranks else 1.0
