"""Bootstrap intervals of means, and of mean differences over the same queries."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean


def interval(values: Sequence[float], resamples: int = 1000, seed: int = 7) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean."""
    draw = random.Random(seed).choices  # noqa: S311 (resampling, not a secret)
    means = sorted(fmean(draw(values, k=len(values))) for _ in range(resamples))
    return means[int(0.025 * resamples)], means[min(int(0.975 * resamples), resamples - 1)]


def paired_interval(
    ours: Sequence[float], theirs: Sequence[float], resamples: int = 1000, seed: int = 7
) -> tuple[float, float]:
    """95 % bootstrap interval of the mean difference over the same queries."""
    return interval([a - b for a, b in zip(ours, theirs, strict=True)], resamples, seed)


def paired_difference(ours: Sequence[float], theirs: Sequence[float], digits: int = 4) -> tuple[float, float, float]:
    """The mean difference over the same queries: lower end of the 95 % interval, mean, upper end; 0 without queries."""
    if not ours:
        return 0.0, 0.0, 0.0
    low, high = paired_interval(ours, theirs)
    return round(low, digits), round(fmean(ours) - fmean(theirs), digits), round(high, digits)
