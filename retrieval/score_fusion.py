"""Fuses the score lists of several lines of a task into one list; `score_sum.fuse_sums` does the same for arrays.

Hits are scores by slot. A slot without a score is left out and counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import hypot, sqrt

LEVELLING = 0.7
"""How far lines are made equal: at 0 a sharp line takes the head of the list, at 1 the best tools of all lines are
equal and a flat line takes it."""
WHOLE = 1.0
"""What the lines read as one text weigh beside the best single line. Lines may be separate needs, or one story in
paragraphs, and nobody tells which; using both readings is best over sets of both kinds (`docs/benchmarks.md`)."""


def score_deviation(hits: Mapping[int, float], size: int) -> float:
    """Standard deviation over a corpus of this size; slots without a hit count as 0."""
    mean = sum(hits.values()) / size
    return sqrt(max(hypot(*hits.values()) ** 2 / size - mean * mean, 0.0))


def level_scale(deviation: float, top: float) -> float:
    """Return the factor that makes lines comparable; it leaves the best tool its z-score to the power 1 -
    `LEVELLING`."""
    return 1.0 / float(max(deviation, 1e-9) ** (1.0 - LEVELLING) * top**LEVELLING)


def level_hits(hits: Mapping[int, float], size: int) -> dict[int, float]:
    """Return the hits of one line times its `level_scale`."""
    if not hits:
        return {}
    scale = level_scale(score_deviation(hits, size), max(hits.values()))
    return {slot: scale * score for slot, score in hits.items()}


def fuse_lines(
    lines: Sequence[Mapping[int, float]], whole: Mapping[int, float], size: int, name: Callable[[int], str]
) -> dict[int, float]:
    """Return one list for several lines: the best tool of every line first (of equals the first by name), then the
    others. A score is what a tool has in its best line plus what it has in all lines read as one text."""
    fused: dict[int, float] = {}
    levels = [level_hits(hits, size) for hits in lines if hits]
    for hits in levels:
        for slot, score in hits.items():
            if score > fused.get(slot, 0.0):
                fused[slot] = score
    for slot, score in level_hits(whole, size).items():
        fused[slot] = fused.get(slot, 0.0) + WHOLE * score
    first = max(fused.values(), default=0.0)
    tops = [(max(hits.values()), hits) for hits in levels]
    leading = ([slot for slot, score in hits.items() if score == top] for top, hits in tops)
    for slot in {leader(best, fused.__getitem__, name) for best in leading}:
        fused[slot] += first
    return fused


def leader(best: Iterable[int], score: Callable[[int], float], name: Callable[[int], str]) -> int:
    """Of the equally good best slots of a line, the one with the highest fused score; of equals the first by name."""
    return min(best, key=lambda slot: (-score(slot), name(slot)))
