"""Several score lists become one: the lines of a task (and once there are encoders, the rankers).

Hits are scores by slot, and only slots that have one: what a ranker knows nothing about is 0 and stays out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import hypot, sqrt

LEVELLING = 0.7
"""0 keeps how sharp each line is (one line then takes the head), 1 makes their best tools equal (a flat one does)."""
WHOLE = 1.0
"""What the lines read as one text weigh beside the best single line.

Lines may be separate needs, or one story in paragraphs; nobody tells which. r@5 on mixed queries of six train sets (one
need a line) / mcpbench (paragraphs) / apibank (dialogues): one text .562 .455 .815; lines alone .629 .390 .774; both
.626 .442 .806; lines alone in turns (round robin) .602 on the first."""


def spread(hits: Mapping[int, float], size: int) -> float:
    """Standard deviation over a corpus of this size; slots without a hit count as 0."""
    mean = sum(hits.values()) / size
    return sqrt(max(hypot(*hits.values()) ** 2 / size - mean * mean, 0.0))


def levelled(hits: Mapping[int, float], size: int) -> dict[int, float]:
    """Hits over spread^(1 - LEVELLING) * top^LEVELLING: the best one keeps its z-score to the power 1 - LEVELLING."""
    if not hits:
        return {}
    scale = 1.0 / (max(spread(hits, size), 1e-9) ** (1.0 - LEVELLING) * max(hits.values()) ** LEVELLING)
    return {slot: scale * score for slot, score in hits.items()}


def fuse_lines(
    lines: Sequence[Mapping[int, float]],
    whole: Mapping[int, float],
    size: int,
    name: Callable[[int], str],
) -> dict[int, float]:
    """One list for several lines: the best tool of every line first (of equals the first by name), then the others.

    A score is what a tool has in its best line plus what it has in all lines read as one text.
    """
    fused: dict[int, float] = {}
    levels = [levelled(hits, size) for hits in lines if hits]
    for hits in levels:
        for slot, score in hits.items():
            if score > fused.get(slot, 0.0):
                fused[slot] = score
    for slot, score in levelled(whole, size).items():
        fused[slot] = fused.get(slot, 0.0) + WHOLE * score
    first = max(fused.values(), default=0.0)
    for leader in {_leader(hits, fused, name) for hits in levels}:
        fused[leader] += first
    return fused


def _leader(hits: Mapping[int, float], fused: Mapping[int, float], name: Callable[[int], str]) -> int:
    best = max(hits.values())
    return min((slot for slot, score in hits.items() if score == best), key=lambda slot: (-fused[slot], name(slot)))
