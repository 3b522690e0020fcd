"""Pins, budget, gate: which of the ranked tools are shown, and how sure we are that they suffice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from foretool.retrieval.ranking import Query, Ranking
from foretool.storage.records import Cause, Level, ToolId, Usage


@dataclass(frozen=True, slots=True)
class Selection:
    """What fits, in the order shown, and why each of the others does not."""

    chosen: tuple[ToolId, ...] = ()
    cut: dict[ToolId, Cause] = field(default_factory=dict)
    tokens: int = 0
    """Tokens of everything chosen."""


def level(ranking: Ranking, query: Query) -> Level:
    """How likely a tool that was needed is among the first five."""
    raise NotImplementedError


def select(
    ranking: Ranking, tokens: Callable[[ToolId], int], budget: int, cap: int, pins: Sequence[ToolId] = ()
) -> Selection:
    """Pins first, then greedily down the ranking while `budget` tokens last, at most `cap` tools besides the pins."""
    raise NotImplementedError


def working_set(
    usages: Sequence[Usage], tokens: Callable[[ToolId], int], budget: int, now: float, half_life_s: float
) -> list[ToolId]:
    """The tools most used lately, most used first, within `budget` tokens; a miss counts more than a call."""
    raise NotImplementedError
