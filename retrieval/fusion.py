"""Several score lists become one: the lines of a task, and (once there are encoders) the rankers.

Scores are (slots,) and 0 where a ranker knows nothing; every function here keeps that 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from math import hypot, sqrt

from foretool.retrieval.ranking import Scores

LEVELLING = 0.7
"""0 keeps how sharp each line is (then one line takes the head), 1 makes their best tools equal (then a flat line does).

Measured on mixed queries of six train sets, r@5: .600 at 0, .618 at .7, .615 at 1; round robin .602, one text .549."""


def spread(scores: Scores, live: int) -> float:
    """Standard deviation over the live slots; those without a score count as 0."""
    mean = sum(scores) / live
    return sqrt(max(hypot(*scores) ** 2 / live - mean * mean, 0.0))


def fuse_lines(lines: Sequence[Scores], live: int) -> Scores:
    """One list for several needs: the best tool of every line first, then whatever any line rates highest.

    A line's scores are divided by spread^(1 - LEVELLING) * top^LEVELLING, which leaves the largest of its z-scores, up
    to that power, as its top; a tool gets the largest it has in any line.
    """
    heard = [scores for scores in lines if max(scores, default=0.0) > 0.0]
    if len(heard) < 2:
        return heard[0] if heard else [0.0] * (len(lines[0]) if lines else 0)
    levelled = [_levelled(scores, live) for scores in heard]
    fused = list(map(max, *levelled))
    first = max(fused)
    for slot in {scores.index(max(scores)) for scores in levelled}:
        fused[slot] += first
    return fused


def head(scores: Scores, limit: int) -> tuple[list[int], list[float]]:
    """The slots that may be among the best `limit` (more where scores tie), unordered, and the best scores in order."""
    best = [score for score in nlargest(limit, scores) if score > 0.0]
    if not best:
        return [], []
    least = best[-1]
    return [slot for slot, score in enumerate(scores) if score >= least], best


def _levelled(scores: Scores, live: int) -> list[float]:
    scale = 1.0 / (max(spread(scores, live), 1e-9) ** (1.0 - LEVELLING) * max(scores) ** LEVELLING)
    return [scale * score for score in scores]
