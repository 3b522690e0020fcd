"""The one way in which a token budget is filled: greedily, in a given order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
NO_LIMITS: Mapping[Any, int] = {}


def fill_budget(
    items: Iterable[T],
    cost: Callable[[T], int],
    budget: int,
    *,
    kind: Callable[[T], Hashable] = lambda _: None,
    most: Mapping[Any, int] = NO_LIMITS,
) -> list[T]:
    """Take items in their order while `budget` tokens last, at most `most[kind]` of each kind.

    An item that costs more than what is left is passed over; a cheaper one after it may still be taken.
    """
    taken: list[T] = []
    counts: Counter[Hashable] = Counter()
    for item in items:
        group, tokens = kind(item), cost(item)
        if tokens <= budget and counts[group] < most.get(group, len(taken) + 1):
            taken.append(item)
            counts[group] += 1
            budget -= tokens
    return taken
