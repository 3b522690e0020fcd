"""Learns what lists are filled with: would more of the called tools have been listed, within the same budget?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

import msgspec
from msgspec.structs import replace

from foretool.learning.list_fill import ListFill, ListSize, judge_gains
from foretool.learning.results import MethodResult, Results, Say
from foretool.learning.timeline import Timeline, usage_of
from foretool.retrieval.evaluation import paired_difference
from foretool.retrieval.tokens import fill_budget
from foretool.server.catalog import models
from foretool.server.lists.order import Prior, order_tools
from foretool.storage.records import ToolId
from foretool.storage.sql.artifacts import ArtifactStore

HALF_LIFE: Final = 200.0
"""Tasks after which one counts half for what lists are filled with."""
_SIZE_PENALTIES: Final = (0.0, 0.5, 1.0)
"""Values tried for how much a tool's size counts against it."""

Calls = Sequence[tuple[ToolId, ...]]
"""The calls of each episode, oldest first."""


@dataclass(frozen=True)
class ListPrior:
    """Fits which tools fill a list before a word of the task is known, and compares that on later tasks."""

    timeline: Timeline
    size: ListSize
    results: Results
    first: Sequence[ToolId] = ()
    """The tools that fill what usage leaves of a list, best first."""

    def learn(self, say: Say) -> MethodResult:
        """Replay later tasks with the prior in use and with a fitted one; promote the one that lists more."""
        trial, old = self.results.begin(models.PRIOR), self.results.artifacts.active(models.PRIOR)
        parts = self.timeline.parts_to_replay(old)
        if not parts:
            return trial.skip(self.timeline.describe_too_few(models.PRIOR, old))
        say(models.PRIOR, "replaying lists", 0.0)
        served = _prior_in_use(self.results.artifacts)
        before: list[float] = []
        after: list[float] = []
        gains: list[float] = []
        filled = ListFill(self.size, self.first)
        for first, last in parts:
            earlier, later = self.timeline.calls(0, first), self.timeline.calls(first, last)
            old_list, new_list = (self._listed(prior, earlier) for prior in (served, self.fit(earlier)))
            before += listed_shares(old_list, later)
            after += listed_shares(new_list, later)
            gains += filled.gains(new_list, self.timeline.episodes[first:last])
        fill, gain = judge_gains(gains, served.fill)
        difference = paired_difference(after, before)
        covered = [fmean(each or [0.0]) for each in (before, after)]
        sizes = [sum(map(self.size.tokens, each)) for each in (old_list, new_list)]
        old_figures, new_figures = (
            {"in_list": round(share, 4), "tokens": size} for share, size in zip(covered, sizes, strict=True)
        )
        report = {
            "replayed": len(before), "budget": self.size.budget, "old": old_figures, "new": new_figures,
            "difference": list(difference), "fill": fill, "fill_gain": gain,
        }  # fmt: skip
        figures = (
            f"{covered[0]:.1%} -> {covered[1]:.1%} ({difference[0]:+.1%} to {difference[2]:+.1%})"
            f" of the called tools in the list, over {len(before)} later tasks"
        )
        if gain:
            figures += f"; filling the rest gains {gain[1]:.0f} tokens a conversation ({gain[0]:.0f} to {gain[2]:.0f})"
        if difference[0] <= 0.0 and fill == served.fill:
            return trial.keep(f"not better outside the error: {figures}", report)
        better = difference[0] > 0.0
        fitted = replace(self.fit(self.timeline.calls(0, len(self.timeline))) if better else served, fill=fill)
        return trial.promote(msgspec.json.encode(fitted), figures, report)

    def fit(self, earlier: Calls) -> Prior:
        """Return the needs of all earlier tasks, with the size penalty that would have listed most for the last
        third."""
        split = len(earlier) * 2 // 3
        known = call_shares(earlier[:split], HALF_LIFE)

        def covered(penalty: float) -> float:
            listed = self._listed(make_prior(known, penalty), earlier[:split])
            return fmean(listed_shares(listed, earlier[split:]) or [0.0])

        best = max(_SIZE_PENALTIES, key=covered)
        return make_prior(call_shares(earlier, HALF_LIFE), best)

    def order(self, earlier: Calls) -> list[ToolId]:
        """Return the order in which tools compete for a list after these tasks, by a fitted prior if one is in use."""
        has_prior = models.PRIOR in self.results.artifacts.served()
        return self._order(self.fit(earlier) if has_prior else Prior(), earlier)

    def _order(self, prior: Prior, earlier: Calls) -> list[ToolId]:
        return order_tools(prior, usage_of(earlier).values(), self.size.tokens, 0.0, 1.0)

    def _listed(self, prior: Prior, earlier: Calls) -> list[ToolId]:
        return fill_budget(self._order(prior, earlier), self.size.tokens, self.size.budget)


def call_shares(episodes: Sequence[tuple[ToolId, ...]], half_life: float) -> dict[ToolId, float]:
    """Return each tool's share of the calls of episodes, oldest first; one counts half after `half_life` later ones."""
    weight: dict[ToolId, float] = {}
    for age, calls in enumerate(reversed(episodes)):
        for tool in calls:
            weight[tool] = weight.get(tool, 0.0) + 0.5 ** (age / half_life)
    total = sum(weight.values()) or 1.0
    return {tool: each / total for tool, each in weight.items()}


def listed_shares(listed: Iterable[ToolId], episodes: Iterable[tuple[ToolId, ...]]) -> list[float]:
    """Return for each episode the share of its calls that listed tools receive; episodes without calls are left out."""
    shown = set(listed)
    return [sum(tool in shown for tool in calls) / len(calls) for calls in episodes if calls]


def make_prior(needs: Mapping[ToolId, float], size_penalty: float) -> Prior:
    """Make a prior of the tools that are needed at all, with shares of six digits."""
    return Prior({tool: round(share, 6) for tool, share in sorted(needs.items()) if share > 0.0}, size_penalty)


def _prior_in_use(artifacts: ArtifactStore) -> Prior:
    for _, data in artifacts.load_intact(models.PRIOR):
        try:
            return msgspec.json.decode(data, type=Prior)
        except msgspec.MsgspecError:
            continue
    return Prior()
