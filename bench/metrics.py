"""How good a ranking is: recall, hit, nDCG, reciprocal rank, completeness.

A query's *gold* is a tuple of needs. A need is the set of tools that meet it, mostly one. A ranked list holds each tool
once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from math import log2
from statistics import fmean

Gold = Sequence[frozenset[Hashable]]


def recall(ranked: Sequence[Hashable], gold: Gold, k: int) -> float:
    """Share of the needs met by the first k."""
    head = frozenset(ranked[:k])
    return fmean(not head.isdisjoint(need) for need in gold)


def possible_recall(gold: Gold, k: int) -> float:
    """The recall that k tools can have: each next tool meets as many open needs as any other."""
    open_needs = list(gold)
    for _ in range(min(k, len(gold))):
        counts = Counter(tool for need in open_needs for tool in need)
        if not counts:
            break
        best = max(counts, key=lambda tool: (counts[tool], str(tool)))
        open_needs = [need for need in open_needs if best not in need]
    return 1.0 - len(open_needs) / len(gold)


def hit(ranked: Sequence[Hashable], gold: Gold, k: int) -> float:
    """1 if the first k meet any need."""
    return float(any(tool in need for tool in ranked[:k] for need in gold))


def completeness(ranked: Sequence[Hashable], gold: Gold, k: int) -> float:
    """1 if the first k meet every need (COLT, section 4)."""
    head = frozenset(ranked[:k])
    return float(not any(head.isdisjoint(need) for need in gold))


def reciprocal_rank(ranked: Sequence[Hashable], gold: Gold) -> float:
    """1 / rank of the first tool that meets a need, 0 if none does."""
    wanted = frozenset[Hashable]().union(*gold)
    return next((1.0 / rank for rank, tool in enumerate(ranked, 1) if tool in wanted), 0.0)


def ndcg(ranked: Sequence[Hashable], gold: Gold, k: int) -> float:
    """Discounted gain over the best possible; a need pays once, whichever of its tools comes first."""
    open_needs = list(gold)
    gained = 0.0
    for rank, tool in enumerate(ranked[:k], 1):
        met = next((need for need in open_needs if tool in need), None)
        if met is not None:
            open_needs.remove(met)
            gained += 1.0 / log2(rank + 1)
    ideal = sum(1.0 / log2(rank + 1) for rank in range(1, min(k, len(gold)) + 1))
    return gained / ideal


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of the sorted values does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
