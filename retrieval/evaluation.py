"""Bootstrap intervals of means. Learning what fills lists needs them without numpy, so nothing heavy is imported."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean
from typing import Final

RESAMPLES: Final = 1000
SEED: Final = 7


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean."""
    draw = random.Random(SEED).choices  # noqa: S311 (resampling, not a secret)
    means = sorted(fmean(draw(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]


def paired_difference(ours: Sequence[float], theirs: Sequence[float], digits: int = 4) -> tuple[float, float, float]:
    """Return the mean difference over the same queries: lower end of the 95 % interval, mean, upper end; 0 without
    queries."""
    if not ours:
        return 0.0, 0.0, 0.0
    low, high = interval([a - b for a, b in zip(ours, theirs, strict=True)])
    return round(low, digits), round(fmean(ours) - fmean(theirs), digits), round(high, digits)
