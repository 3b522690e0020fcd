"""Fits how lists grow (`server.lists.order`) on later tasks, which are played call by call as a client would.

The probability that a task needs a ranked tool is logistic. The price of a hidden call, and the tokens that a list
begins with, are those that cost least within an *allowance*: the tokens that lists took in the tasks on record before
anything was learned or used. So learning does not pay for fewer hidden calls with longer lists.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from statistics import fmean
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct

from foretool.learning.list_fill import HIDDEN_CALL
from foretool.learning.training.optimizers import Doubles, logistic_regression
from foretool.learning.training.replay import LONGEST, query_after
from foretool.retrieval.chances import Growth, growth_features
from foretool.retrieval.confidence import judge
from foretool.retrieval.evaluation import paired_difference
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.learned import LearnedModels
from foretool.retrieval.ranking import Query, Ranked, Ranking
from foretool.retrieval.tokens import fill_budget
from foretool.server.lists.order import DEPTH, FixedRule, GrowthRule, LearnedRule, Prediction, Tokens
from foretool.storage.records import Episode, ToolId, Usage

PRIOR: Final = (-0.289, 0.247, -0.606, 0.59, 0.321, 0.226, 0.168, -2.346)
"""The weights that a log starts from, fitted on training parts of two public sets (docs/benchmarks.md)."""
RIDGE: Final = 100.0
"""The pull of every weight to `PRIOR`, as strong as so many outcomes at a sign of 1."""
MOST_PRICE: Final = HIDDEN_CALL
_PRICES: Final = tuple(float(each) for each in np.geomspace(MOST_PRICE, 100.0, 20).round(1))
"""The prices that are tried, from the highest down."""
_BASES: Final = (0.0, 0.125, 0.25, 0.375, 0.5)
"""The shares of the budget that a list may begin with, our own tools included."""

_SURE: Final = ("high", "medium")
"""The levels of confidence at which the found tools probably suffice."""
SPENT: Final = 0.9
"""Share of what lists took at first; a choice made on the replayed tasks takes more on others, by chance."""
MARGIN: Final = 0.05
"""How much more a new growth may cost at worst, as a share of what the old one costs."""


class ListCost(Struct, frozen=True):
    """What one task costs under one rule."""

    calls: int
    hidden: int
    """Calls of tools that were not in the list when they were wanted."""
    discoveries: int
    tokens: int
    """Tokens of the list at its end, our own tools left out."""

    def cost(self, price: float = MOST_PRICE) -> float:
        """Return the cost in tokens, with each discovery at its price."""
        return self.tokens + price * self.discoveries


class FoundTools(NamedTuple):
    """What a search finds."""

    ranked: tuple[Ranked, ...]
    shown: tuple[Ranked, ...]
    """The tools that the answer names."""
    is_sure: bool


class Segment:
    """Consecutive later tasks, and the ranking as it was before any of them."""

    def __init__(
        self,
        pipeline: Pipeline,
        experience: LearnedModels | None,
        episodes: Sequence[Episode],
        upstream_of: Mapping[ToolId, str],
        *,
        usage: Mapping[ToolId, Usage],
        order: Sequence[ToolId],
        prompted: frozenset[str] = frozenset(),
    ) -> None:
        """`order`: the order in which tools competed for the list; `prompted`: tasks that a hook recorded before their
        first call. Tasks without words, and calls of tools that are gone, are left out."""
        self.episodes = [each for each in episodes if each.tasks and each.tasks[0].strip()]
        self.order = order
        self._pipeline, self._experience = pipeline, experience
        self.has_models = experience is not None
        self._upstream_of, self._usage, self._prompted = upstream_of, usage, prompted
        self._found: dict[tuple[str, tuple[ToolId, ...]], Ranking] = {}
        self._judged: dict[tuple[str, tuple[ToolId, ...]], FoundTools] = {}
        self._next: dict[tuple[str, tuple[ToolId, ...]], Prediction] = {}

    def part(self, first: int) -> Segment:
        """Return every second task, from the task at `first` on."""
        other = copy(self)
        other.episodes = self.episodes[first::2]
        return other

    def calls(self, episode: Episode) -> list[ToolId]:
        return [tool for tool in episode.calls[:LONGEST] if tool in self._upstream_of]

    def is_prompted(self, episode: Episode) -> bool:
        return episode.tasks[0] in self._prompted

    def found(self, episode: Episode, history: tuple[ToolId, ...] = ()) -> Ranking:
        """Return the ranking for the words of a task after these calls."""
        key = (episode.tasks[0], history)
        if key not in self._found:
            self._pipeline.learned = self._experience
            self._found[key] = self._pipeline.rank(self.query(episode, history), self._usage, DEPTH)
        return self._found[key]

    def answer(self, episode: Episode, history: tuple[ToolId, ...] = ()) -> FoundTools:
        """Return the answer to the words of a task after these calls."""
        key = (episode.tasks[0], history)
        if key not in self._judged:
            ranking = self.found(episode, history)
            judged = judge(ranking)
            self._judged[key] = FoundTools(ranking.ranked, ranking.ranked[: judged.k], judged.level in _SURE)
        return self._judged[key]

    def after(self, lines: tuple[str, ...], history: tuple[ToolId, ...]) -> Prediction:
        """Return the prediction of the next call; `lines` are what the proxy knows of the task by then."""
        key = ("\n".join(lines), history)
        if key not in self._next:
            self._pipeline.learned = self._experience
            self._next[key] = Prediction(*self._pipeline.after(history, lines))
        return self._next[key]

    def query(self, episode: Episode, history: tuple[ToolId, ...]) -> Query:
        return query_after(episode.tasks[0], history, self._upstream_of)


def fit_weights(segments: Sequence[Segment]) -> tuple[float, ...]:
    """Fit the weights of `FEATURES` on the tools that each task's words found, and which of them were called."""
    rows: list[tuple[float, ...]] = []
    needed: list[bool] = []
    for segment in segments:
        for episode in segment.episodes:
            ranked = segment.found(episode).ranked
            rows += growth_features(ranked)
            needed += [each.tool in episode.calls for each in ranked]
    if not rows:
        return PRIOR
    return tuple(round(float(each), 5) for each in fit_logistic(np.asarray(rows), np.asarray(needed, np.float64)))


def fit_logistic(rows: Doubles, needed: Doubles) -> Doubles:
    """Fit the weights of features (tools, features) to which tools were needed (tools,), pulled to `PRIOR`."""
    return logistic_regression(rows, needed, np.ones(len(needed)), RIDGE, np.asarray(PRIOR))


def play(
    segments: Sequence[Segment], rule: GrowthRule | _Priced, tokens: Tokens, budget: int, base: int
) -> list[ListCost]:
    """Play every task under one rule. `budget`: tokens of a list without our own; `base`: what it begins with."""
    found: list[ListCost] = []
    for segment in segments:
        listed = fill_budget(segment.order, tokens, base)
        found += [_played(segment, each, rule, tokens, budget, listed) for each in segment.episodes]
    return found


def _played(
    segment: Segment,
    episode: Episode,
    rule: GrowthRule | _Priced,
    tokens: Tokens,
    budget: int,
    listed: Sequence[ToolId],
) -> ListCost:
    shown = set(listed)
    left = budget - sum(map(tokens, listed))
    known: set[ToolId] = set()
    lines: tuple[str, ...] = ()
    history: tuple[ToolId, ...] = ()
    hidden = discoveries = 0

    def grow(wanted: Sequence[ToolId]) -> None:
        nonlocal left
        added = fill_budget((tool for tool in dict.fromkeys(wanted) if tool not in shown), tokens, left)
        shown.update(added)
        left -= sum(map(tokens, added))

    if segment.is_prompted(episode):
        answer = segment.answer(episode)
        lines = segment.query(episode, ()).lines
        grow(rule.for_prompt(answer.ranked, answer.is_sure, tokens))
    calls = segment.calls(episode)
    for tool in calls:
        if tool not in shown:
            hidden += 1
            if tool not in known:
                discoveries += 1
                answer = segment.answer(episode, history)
                lines = segment.query(episode, history).lines
                known.update(each.tool for each in answer.shown)
                grow(rule.for_discovery(answer.shown, answer.is_sure, tokens))
        history = history if history[-1:] == (tool,) else (*history, tool)
        said = segment.after(lines, history)
        hidden_next = {tool: chance for tool, chance in said.chances.items() if tool not in shown}
        grow(rule.for_next(hidden_next, said.goes_on, tokens))
    return ListCost(len(calls), hidden, discoveries, budget - left)


def halves(segments: Sequence[Segment]) -> Iterator[tuple[list[Segment], list[Segment]]]:
    """Yield every second task beside the others, then the other way round; both share what was found."""
    one, other = ([each.part(first) for each in segments] for first in (0, 1))
    yield one, other
    yield other, one


def allowance(unlearned: Segment, tokens: Tokens, budget: int, base: int = 0) -> float:
    """Return the tokens that lists may take in the mean: a little less than they took in the tasks on record before
    anything was learned or used. `unlearned`: these tasks without models and usage, in the order that fills a first
    list; `base`: the tokens that such a list may begin with."""
    costs = play([unlearned], FixedRule(most_found=None), tokens, budget, base)
    return SPENT * fmean(each.tokens for each in costs) if costs else 0.0


def fit_growth(segments: Sequence[Segment], tokens: Tokens, *, budget: int, own: int, allowed: float) -> Growth | None:
    """Return the growth that costs least (`ListCost.cost`) among those whose lists take at most the allowed tokens in
    the mean; None if there is no such growth. `own`: tokens of our own tools, which the others leave out."""
    weights = fit_weights(segments)
    chances: dict[int, list[tuple[ToolId, float]]] = {}
    best: tuple[float, Growth] | None = None
    for share in _BASES:
        base = int(share * (budget + own)) - own if share else 0
        if base < 0:
            continue

        def costs_at(price: float, base: int = base) -> list[ListCost]:
            rule = _Priced(Growth(weights, price, base), chances)
            return play(segments, rule, tokens, budget, base)

        # A lower price gives shorter lists and more discoveries, which cost more than the lists save. So the highest
        # price whose lists are short enough is the best one.
        place = bisect_left(_PRICES, True, key=lambda price: _mean_tokens(costs_at(price)) <= allowed)
        if place < len(_PRICES):
            cost = fmean(each.cost() for each in costs_at(_PRICES[place]))
            if best is None or cost < best[0]:
                best = cost, Growth(weights, _PRICES[place], base)
    return best[1] if best else None


def _mean_tokens(costs: Sequence[ListCost]) -> float:
    return fmean(each.tokens for each in costs)


class _Priced:
    """A growth that remembers what it makes of each ranking: the same ones are asked at every price."""

    def __init__(self, growth: Growth, chances: dict[int, list[tuple[ToolId, float]]]) -> None:
        """`chances`: by the id of a ranking's tools, which a segment keeps for as long as it lives."""
        self._growth, self._chances = growth, chances
        self.for_next = LearnedRule(growth).for_next

    def for_prompt(self, ranked: Sequence[Ranked], is_sure: bool, tokens: Tokens) -> list[ToolId]:
        found = self._chances.get(id(ranked))
        if found is None:
            best = ranked[:DEPTH]
            pairs = zip((each.tool for each in best), self._growth.chances(best), strict=True)
            found = self._chances[id(ranked)] = sorted(pairs, key=lambda pair: pair[1], reverse=True)
        return [tool for tool, chance in found if chance * self._growth.price >= tokens(tool)]

    for_discovery = for_prompt


class Gain(Struct, frozen=True):
    """What the same tasks cost under two rules."""

    old: tuple[ListCost, ...]
    new: tuple[ListCost, ...]

    @property
    def difference(self) -> tuple[float, float, float]:
        """The difference of the cost of a task: lower end of the 95 % interval, mean, upper end."""
        return paired_difference([each.cost() for each in self.new], [each.cost() for each in self.old], digits=1)

    @property
    def is_better(self) -> bool:
        """Whether the new rule is cheaper in the mean, and at worst only a little dearer."""
        _, mean, high = self.difference
        return mean < 0.0 and high <= MARGIN * fmean(each.cost() for each in self.old)

    @property
    def is_sure(self) -> bool:
        """Whether the new rule is cheaper outside the error."""
        return self.difference[2] < 0.0

    def report(self) -> dict[str, Any]:
        """Return the figures for a report."""
        return {
            "replayed": len(self.new), "old": average_costs(self.old), "new": average_costs(self.new),
            "difference": list(self.difference),
        }  # fmt: skip


def average_costs(costs: Sequence[ListCost]) -> dict[str, float]:
    """Hidden calls as a share of all calls, the other figures by task."""
    return {
        "hidden": round(sum(each.hidden for each in costs) / max(sum(each.calls for each in costs), 1), 4),
        "discoveries": round(fmean(each.discoveries for each in costs), 3),
        "tokens": round(fmean(each.tokens for each in costs), 1),
    }
