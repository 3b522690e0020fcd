"""Learns how lists grow, and compares what growing lists cost without a model and with it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from foretool.learning.list_fill import ListSize
from foretool.learning.replay import Replay, factors_in_use
from foretool.learning.results import MethodResult, Results, Say
from foretool.learning.timeline import LEAST_REPLAYED, MOST_REPLAYED, KnownModels, Timeline
from foretool.learning.training import list_growth as training
from foretool.learning.training.list_growth import Gain, ListCost, Segment
from foretool.retrieval.chances import Growth
from foretool.retrieval.rankers.learned import Factors, LearnedModels
from foretool.server.catalog import models
from foretool.server.lists.order import FixedRule, GrowthRule, LearnedRule, ListBudget, order_by_use
from foretool.storage.records import ToolId

if TYPE_CHECKING:
    from foretool.retrieval.rankers.learned import LearnedModel


@dataclass(frozen=True)
class ListGrowth:
    """Fits which tools a list gains for what was found or predicted, and how many tokens it begins with."""

    timeline: Timeline
    replay: Replay
    size: ListSize
    results: Results
    prompted: frozenset[str]
    """Tasks that a hook recorded before their first call."""
    first: Sequence[ToolId]
    """The tools that fill a first list, best first."""

    def learn(self, known: KnownModels, say: Say) -> MethodResult:
        """Fit the growth for the models that serve now, on tasks that none of them had seen; promote it if it costs
        less than the growth in use."""
        kind = models.GROWTH
        trial, old = self.results.begin(kind), self.results.artifacts.active(kind)
        segments = [each for each in self._segments(known) if each.episodes]
        count = sum(len(each.episodes) for each in segments)
        if count < LEAST_REPLAYED:
            return trial.skip(f"{count} tasks in words that no model has seen; it takes {LEAST_REPLAYED}")
        say(kind, "replaying", 0.0)
        rule = self._rule_in_use() if old else FixedRule()
        before = [cost for part, _ in training.halves(segments) for cost in self._play(part, rule)]
        gain = Gain(tuple(before), self._fitted_costs(segments, rule))
        report: dict[str, Any] = {**gain.report(), "allowed": round(self._allowed, 1)}
        growth = self._fit(segments)
        if growth is None or not gain.is_better:
            return trial.keep(f"not better: {_describe(report)}", report)
        growth = replace(growth, models=self.results.numbers(), encoders=self.results.encoders)
        report["growth"] = msgspec.to_builtins(growth)
        return trial.promote(msgspec.json.encode(growth), _describe(report), report)

    def compare(self, pairs: Sequence[tuple[Segment, Segment]]) -> Gain | None:
        """Return what growing lists cost in the same tasks without a model and with it, with a growth fitted to each;
        None if there are too few tasks."""
        if sum(len(old.episodes) for old, _ in pairs) < LEAST_REPLAYED:
            return None
        old, new = (self._fitted_costs(each, FixedRule()) for each in zip(*pairs, strict=True))
        return Gain(old, new)

    def segment(self, served: Mapping[str, LearnedModel], first: int, last: int) -> Segment:
        """Return the tasks from one place to another with these models, and lists as they were before."""
        factors = factors_in_use(self.results.artifacts)
        key = (first, last, *sorted((kind, id(model)) for kind, model in served.items()), *sorted(factors.items()))
        if key not in self._kept:
            # The models are kept too, so that no other model gets the id of one of them.
            self._kept[key] = dict(served), self._make_segment(served, factors, first, last)
        return self._kept[key][1]

    @cached_property
    def _kept(self) -> dict[tuple[object, ...], tuple[object, Segment]]:
        """The tasks with each set of models, which remember what was found for them."""
        return {}

    def _make_segment(
        self, served: Mapping[str, LearnedModel], factors: Mapping[str, float], first: int, last: int
    ) -> Segment:
        learned = LearnedModels(served, Factors(self.results.encoders, dict(factors))) if served else None
        usage = self.timeline.usage_before(first)
        return Segment(
            self.replay.pipeline({}), learned,
            self.timeline.episodes[first:last], self.replay.upstream_of, prompted=self.prompted,
            usage=usage, order=order_by_use(usage.values(), self.size.tokens, 0.0, 1.0),
        )  # fmt: skip

    def _segments(self, known: KnownModels) -> Iterator[Segment]:
        """Yield the later tasks with every model as it was before them."""
        last = len(self.timeline)
        places = [place for place in known.places() if place < last]
        for first, end in itertools.pairwise([*places, last]):
            served = known.before(first)
            if len(served) == len(known) and end > last - MOST_REPLAYED:
                yield self.segment(served, first, end)

    def _fitted_costs(self, segments: Sequence[Segment], otherwise: GrowthRule) -> tuple[ListCost, ...]:
        """Return what each half of the tasks costs with the growth that was fitted to the other half, if there is
        one."""
        found: list[ListCost] = []
        for part, other in training.halves(segments):
            growth = self._fit(other) if part[0].has_models else None
            rule = (
                LearnedRule(growth)
                if growth is not None
                else otherwise
                if part[0].has_models
                else FixedRule(most_found=None)
            )
            found += self._play(part, rule)
        return tuple(found)

    def _fit(self, segments: Sequence[Segment]) -> Growth | None:
        size = self.size
        return training.fit_growth(segments, size.tokens, budget=size.budget, own=size.own, allowed=self._allowed)

    def _play(self, segments: Sequence[Segment], rule: GrowthRule) -> list[ListCost]:
        return training.play(segments, rule, self.size.tokens, self.size.budget, self._base(rule))

    @cached_property
    def _allowed(self) -> float:
        """The tokens that lists may take: what they took in the same tasks before anything was learned or used, with
        the tools that fill a first list."""
        episodes = self.timeline.episodes[-MOST_REPLAYED:]
        unlearned = Segment(
            self.replay.pipeline({}), None, episodes, self.replay.upstream_of, usage={},
            order=self.first, prompted=self.prompted,
        )  # fmt: skip
        return training.allowance(unlearned, self.size.tokens, self.size.budget, self._base(FixedRule()))

    def _rule_in_use(self) -> GrowthRule:
        """Return how lists grow now, with the models that serve now."""
        results = self.results
        whole = results.artifacts.load_intact(models.GROWTH)
        chosen = models.choose_growth(whole, results.numbers(), results.encoders)
        return LearnedRule(chosen[1]) if chosen is not None else FixedRule()

    def _base(self, rule: GrowthRule) -> int:
        """Return the tokens that a list begins with, our own tools left out."""
        if isinstance(rule, LearnedRule):
            return rule.growth.base
        share = models.read_named_share(self.results.artifacts)
        return ListBudget(self.size.tokens, None, self.size.budget, share, is_growing=True).begins_with


def _describe(report: Mapping[str, Any]) -> str:
    old, new = report["old"], report["new"]
    return (
        f"hidden calls {old['hidden']:.1%} -> {new['hidden']:.1%}, discoveries a task {old['discoveries']:.2f} ->"
        f" {new['discoveries']:.2f}, tokens of tools in the list {old['tokens']:.0f} -> {new['tokens']:.0f},"
        f" over {report['replayed']} later tasks"
    )
