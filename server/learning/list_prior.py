"""Learns what lists are filled with: would more of the called tools have been listed, within the same budget?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import msgspec
from msgspec import Struct

from foretool.retrieval import list_prior as priors
from foretool.retrieval.budget import fill_budget
from foretool.server.catalog import models
from foretool.server.learning.results import MethodResult, Results, Say
from foretool.server.learning.timeline import Timeline, usage_of
from foretool.storage.records import ToolId
from foretool.storage.stores import ArtifactStore

HALF_LIFE: Final = 200.0
"""Tasks after which one counts half for what lists are filled with."""
SIZE_PENALTIES: Final = (0.0, 0.5, 1.0)
"""Values tried for how much a tool's size counts against it."""

Calls = Sequence[tuple[ToolId, ...]]
"""The calls of each episode, oldest first."""


class ListSize(Struct, frozen=True):
    """The tokens that a list may take."""

    tokens: Callable[[ToolId], int]
    whole: int
    """Of a list with our own tools."""
    own: int
    """Of our own tools."""

    @property
    def budget(self) -> int:
        """What is left for the tools of upstreams."""
        return max(self.whole - self.own, 0)


@dataclass(frozen=True)
class ListPrior:
    """Fits which tools fill a list before a word of the task is known, and compares that on later tasks."""

    timeline: Timeline
    size: ListSize
    results: Results

    def learn(self, say: Say) -> MethodResult:
        """Replays later tasks with the prior in use and with a fitted one; promotes the one that lists more."""
        trial, old = self.results.begin(models.PRIOR), self.results.artifacts.active(models.PRIOR)
        parts = self.timeline.parts_to_replay(old)
        if not parts:
            return trial.skip(self.timeline.describe_too_few(models.PRIOR, old))
        say(models.PRIOR, "replaying lists", 0.0)
        served = _prior_in_use(self.results.artifacts)
        covered = ListCoverage()
        for first, last in parts:
            earlier = self.timeline.calls(0, first)
            lists = [self._listed(prior, earlier) for prior in (served, self.fit(earlier))]
            covered.add(lists, self.timeline.calls(first, last))
        report = {
            "replayed": len(covered.before), "budget": self.size.budget, **covered.report(self.size.tokens),
        }  # fmt: skip
        figures = f"{covered.figures} of the called tools in the list, over {len(covered.before)} later tasks"
        if covered.difference[0] <= 0.0:
            return trial.keep(f"not better outside the error: {figures}", report)
        fitted = self.fit(self.timeline.calls(0, len(self.timeline)))
        return trial.promote(priors.dumps(fitted), figures, report)

    def fit(self, earlier: Calls) -> priors.Prior:
        """The needs of all earlier tasks, with the size penalty that would have listed most for the last third."""
        split = len(earlier) * 2 // 3
        known = priors.needs(earlier[:split], HALF_LIFE)

        def covered(penalty: float) -> float:
            listed = self._listed(priors.make_prior(known, penalty), earlier[:split])
            return fmean(priors.coverage(listed, earlier[split:]) or [0.0])

        best = max(SIZE_PENALTIES, key=covered)
        return priors.make_prior(priors.needs(earlier, HALF_LIFE), best)

    def order(self, earlier: Calls) -> list[ToolId]:
        """The order in which tools compete for a list after these tasks, by a fitted prior if one is in use."""
        has_prior = self.results.artifacts.active(models.PRIOR) is not None
        return self._order(self.fit(earlier) if has_prior else priors.Prior(), earlier)

    def _order(self, prior: priors.Prior, earlier: Calls) -> list[ToolId]:
        return priors.order(prior, usage_of(earlier).values(), self.size.tokens, 0.0, 1.0)

    def _listed(self, prior: priors.Prior, earlier: Calls) -> list[ToolId]:
        return fill_budget(self._order(prior, earlier), self.size.tokens, self.size.budget)


class ListCoverage:
    """The share of the calls of later tasks that the old and the new list would have held."""

    def __init__(self) -> None:
        self.before: list[float] = []
        self.after: list[float] = []
        self._lists: Sequence[Sequence[ToolId]] = ((), ())

    def add(self, lists: Sequence[Sequence[ToolId]], later: Calls) -> None:
        """Adds the tasks of one part, for which these are the old and the new list."""
        self._lists = lists
        self.before += priors.coverage(lists[0], later)
        self.after += priors.coverage(lists[1], later)

    @property
    def difference(self) -> tuple[float, float, float]:
        """Lower end, mean and upper end of the gain."""
        from foretool.retrieval.evaluation import paired_interval

        if not self.before:
            return 0.0, 0.0, 0.0
        low, high = paired_interval(self.after, self.before)
        return round(low, 4), round(fmean(self.after) - fmean(self.before), 4), round(high, 4)

    @property
    def figures(self) -> str:
        low, _, high = self.difference
        return f"{fmean(self.before or [0.0]):.1%} -> {fmean(self.after or [0.0]):.1%} ({low:+.1%} to {high:+.1%})"

    def report(self, tokens: Callable[[ToolId], int]) -> dict[str, Any]:
        """The figures for a report; its tokens are those of the last part's lists."""
        sizes = [sum(map(tokens, each)) for each in self._lists]
        return {
            "old": {"in_list": round(fmean(self.before or [0.0]), 4), "tokens": sizes[0]},
            "new": {"in_list": round(fmean(self.after or [0.0]), 4), "tokens": sizes[1]},
            "difference": list(self.difference),
        }


def _prior_in_use(artifacts: ArtifactStore) -> priors.Prior:
    for _, data in artifacts.load_intact(models.PRIOR):
        try:
            return priors.loads(data)
        except msgspec.MsgspecError:
            continue
    return priors.Prior()
