"""Learns how much of a list goes to names: which split of its tokens would have saved most discovery turns?

A definition takes five to ten times the tokens of a name with its required arguments, so a list can name far more tools
than it can define. A named tool is called through a bridge without a discovery (`server.catalog.signatures`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

import msgspec

from foretool.learning.list_fill import ListSize
from foretool.learning.results import MethodResult, Results, Say
from foretool.learning.timeline import LEAST_REPLAYED, MOST_REPLAYED, Timeline, usage_of
from foretool.retrieval.evaluation import paired_difference
from foretool.server.catalog import models
from foretool.server.catalog.models import NamedShare
from foretool.server.lists.order import ListBudget, NameCost, order_by_use
from foretool.storage.records import Artifact, ToolId

_LEAST_EARLIER: Final = 20
"""Tasks that fit the first share; a share fitted to fewer says little."""
_BLOCK: Final = 10
"""Tasks that are judged with one list."""
NAME_SHARES: Final = (0.25, 0.5, 0.7, models.FIRST_NAMED)
"""Shares of a list's tokens that are tried for names."""
NAMED_CALL: Final = 0.05
"""What a call of a named tool costs, in discovery turns: without its definition a model now and then calls it wrong."""


Calls = Sequence[tuple[ToolId, ...]]
"""The calls of each episode, oldest first."""


@dataclass(frozen=True)
class ListNames:
    """Fits the share of names, and compares it with the one in use on later tasks."""

    timeline: Timeline
    size: ListSize
    name_cost: Callable[[ToolId], NameCost]
    results: Results

    def learn(self, say: Say) -> MethodResult:
        """Replay later tasks with the share in use and with a fitted one; promote the one that takes fewer turns."""
        trial, old = self.results.begin(models.NAMES), self.results.artifacts.active(models.NAMES)
        parts = self._parts(old)
        if not parts:
            return trial.skip(self.timeline.describe_too_few(models.NAMES, old))
        say(models.NAMES, "replaying lists", 0.0)
        served = models.read_named_share(self.results.artifacts)
        before: list[float] = []
        after: list[float] = []
        for first, last in parts:
            earlier, later = self.timeline.calls(0, first), self.timeline.calls(first, last)
            before += self._costs(served, earlier, later)
            after += self._costs(self.fit(earlier), earlier, later)
        fitted = self.fit(self.timeline.calls(0, len(self.timeline)))
        saved = paired_difference(before, after)
        means = [round(fmean(each or [0.0]), 4) for each in (before, after)]
        report = {
            "replayed": len(before), "old": {"share": served, "turns": means[0]},
            "new": {"share": fitted, "turns": means[1]}, "difference": list(saved),
        }  # fmt: skip
        figures = (
            f"{means[0]:.2f} -> {means[1]:.2f} discovery turns a task ({0.0 - saved[2]:+.2f} to {0.0 - saved[0]:+.2f})"
            f" with {served:.0%} -> {fitted:.0%} of a list for names, over {len(before)} later tasks"
        )
        if saved[0] <= 0.0:
            return trial.keep(f"not better outside the error: {figures}", report)
        return trial.promote(msgspec.json.encode(NamedShare(fitted)), figures, report)

    def fit(self, earlier: Calls) -> float:
        """Return the share that would have taken the fewest turns in the later half of some tasks."""
        split = len(earlier) // 2
        return min(NAME_SHARES, key=lambda share: fmean(self._costs(share, earlier[:split], earlier[split:]) or [0.0]))

    def _parts(self, old: Artifact | None) -> list[tuple[int, int]]:
        """Return the tasks to replay, block by block, each judged with lists made of everything before it. A list needs
        no training, so far more tasks can be replayed than for a method."""
        end = len(self.timeline)
        first = max(self.timeline.place_after(old) if old is not None else _LEAST_EARLIER, end - MOST_REPLAYED)
        if end - first < LEAST_REPLAYED:
            return []
        return [(place, min(place + _BLOCK, end)) for place in range(first, end, _BLOCK)]

    def _costs(self, share: float, earlier: Calls, later: Sequence[tuple[ToolId, ...]]) -> list[float]:
        budget = ListBudget(self.size.tokens, self.name_cost, self.size.budget, share)
        return turn_costs(*budget.split(order_by_use(usage_of(earlier).values(), self.size.tokens, 0.0, 1.0)), later)


def turn_costs(
    defined: Iterable[ToolId], named: Iterable[ToolId], episodes: Iterable[tuple[ToolId, ...]]
) -> list[float]:
    """Return what each episode costs in discovery turns: one if the list shows a called tool in no way, and
    `NAMED_CALL` for each tool that it only names."""
    defines, names = set(defined), set(named)
    return [
        float(not set(calls) <= defines | names) + NAMED_CALL * len(set(calls) & names - defines)
        for calls in episodes
        if calls
    ]
