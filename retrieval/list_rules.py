"""Decides what a tool list holds: the order in which tools compete for it, and what it gains when it grows.

The order is by need per token: two small tools that are needed now and then may be worth more than a large one that is
needed often. `Prior` says how much the next task is likely to need each tool, before a word of it is known.

A list grows after a search or a prediction: by a few of the best tools (`Fixed`), or once growing was learned by those
whose probability of being needed, times the price of a hidden call, exceeds their tokens (`Growth`). What scores mean
depends on the models and encoders that made them, so a fit names these and counts for no others.

`foretool learn` keeps both as JSON. This module imports nothing heavy, because a client waits for its answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log
from operator import mul
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from foretool.retrieval.calibration import sigmoid
from foretool.retrieval.ranking import Ranked
from foretool.retrieval.tokens import fill_budget
from foretool.storage.records import ToolId, Usage

FEATURES = ("place", "behind", "best", "found", "tasks", "history", "new", "bias")
"""What the probability of a ranked tool is computed from: the logarithm of its rank, how far its score is behind the
best one, the logarithm of the best one, its score from words and meaning, what three learned parts gave it, and 1.
Parts that are added into one score are read as a share of the best score, which models that believe in themselves more
with every run move by tens."""
UNIT, LEAST_BEST = 5.0, 3.0
"""The unit of such a share, and the least best score that it is a share of."""
LEARNED = ("tasks", "history", "new", "graph", "trained")
"""Parts of a score that models add; the rest is words, meaning, names and usage."""
_LEARNED = frozenset(LEARNED)
DEPTH = 20
"""How many tools of a ranking may be listed."""
LEAST_NEXT = 0.15
"""The least probability of a predicted tool for which a list grows after a call, because listing again costs time."""
MOST_NEXT = 4
"""How many tools one prediction adds until growing was learned."""
MOST_FOUND = 6
"""How many matches a prompt adds, and a discovery once models rank, because the ranking is sharper then."""
BASE_SHARE = 0.5
"""The share of the budget that a growing list begins with until growing was learned (`docs/benchmarks.md`)."""
SIZE_PENALTY = 0.5
"""How much the size of a tool counts until that was learned (`docs/benchmarks.md`)."""
LEARNED_NEED = 0.7
"""What the learned need counts beside plain usage, which knows what happened since the last learning run."""

HIDDEN_CALL = 4_000.0
"""What a hidden call costs at most, in tokens: an answer of about 1,000, and a turn in which the model reads everything
again."""

Tokens = Callable[[ToolId], int]


# The order
MISS_WEIGHT = 3.0
"""How many calls one miss counts: the tool was needed and hidden."""
HALF_LIFE_S = 14 * 86_400.0
"""A tool that was last used this long ago counts half, in seconds."""


def decay_usage(usage: Usage, now: float, half_life_s: float) -> float:
    """Return the calls and misses of a tool, halved for every half-life since the last use."""
    age = max(now - usage.last_at, 0.0)
    return float((usage.calls + MISS_WEIGHT * usage.misses) * 0.5 ** (age / half_life_s))


class Prior(Struct, frozen=True):
    """How much each tool is needed."""

    need: dict[ToolId, float] = {}
    """The share of the calls of a coming task; the shares add up to 1 at most."""
    size_penalty: float = field(default=SIZE_PENALTY, name="thrift")
    """How much the size of a tool counts against it: at 0 not at all, at 1 as need per token."""
    fill: bool = True
    """Whether tools that were never used fill the rest of a list."""


def order_tools(prior: Prior, usages: Iterable[Usage], tokens: Tokens, now: float, half_life_s: float) -> list[ToolId]:
    """Sort tools as they compete for a budget; equal tools come by name. What several usages say of one tool adds
    up."""
    used: dict[ToolId, float] = {}
    for each in usages:
        used[each.tool] = used.get(each.tool, 0.0) + decay_usage(each, now, half_life_s)
    total = sum(used.values()) or 1.0
    worth = {
        tool: LEARNED_NEED * prior.need.get(tool, 0.0) + (1.0 - LEARNED_NEED) * used.get(tool, 0.0) / total
        for tool in {*prior.need, *used}
    }
    value = {tool: share / max(tokens(tool), 1) ** prior.size_penalty for tool, share in worth.items() if share > 0.0}
    return sorted(value, key=lambda tool: (-value[tool], tool))


def needs(episodes: Sequence[tuple[ToolId, ...]], half_life: float) -> dict[ToolId, float]:
    """Return each tool's share of the calls of episodes, oldest first; one counts half after `half_life` later ones."""
    weight: dict[ToolId, float] = {}
    for age, calls in enumerate(reversed(episodes)):
        for tool in calls:
            weight[tool] = weight.get(tool, 0.0) + 0.5 ** (age / half_life)
    total = sum(weight.values()) or 1.0
    return {tool: each / total for tool, each in weight.items()}


def coverage(listed: Iterable[ToolId], episodes: Iterable[tuple[ToolId, ...]]) -> list[float]:
    """Return for each episode the share of its calls that listed tools receive; episodes without calls are left out."""
    shown = set(listed)
    return [sum(tool in shown for tool in calls) / len(calls) for calls in episodes if calls]


def make_prior(needs: Mapping[ToolId, float], size_penalty: float) -> Prior:
    """Make a prior of the tools that are needed at all, with shares of six digits."""
    return Prior({tool: round(share, 6) for tool, share in sorted(needs.items()) if share > 0.0}, size_penalty)


# Names


NAME_SHARES = (0.0, 0.25, 0.5, 0.75)
"""Shares of a frozen list's tokens that are tried for names."""
NAMED_CALL = 0.05
"""What a call of a named tool costs, in discovery turns: without its definition a model now and then calls it wrong."""
BETWEEN = 2
"""Tokens between two names."""


class Names(Struct, frozen=True):
    """How much of a frozen list goes to tools that are named in one short call each, instead of defined."""

    share: float = 0.0
    """Of the tokens that are left for tools."""


class NameCost(NamedTuple):
    """The tokens of a name in a text that names many tools."""

    group: str = ""
    """What it shares with others, which is written once."""
    shared: int = 0
    """Tokens of that."""
    own: int = 0
    """Tokens of the rest; 0 for a tool that cannot be named."""


def fill_names(order: Iterable[ToolId], cost: Callable[[ToolId], NameCost], left: int) -> list[ToolId]:
    """Name tools in their order while `left` tokens last, as `fill_budget` does."""
    named: list[ToolId] = []
    begun: set[str] = set()
    for tool in order:
        group, shared, own = cost(tool)
        whole = own + BETWEEN + (shared if group not in begun else 0)
        if own and whole <= left:
            named.append(tool)
            begun.add(group)
            left -= whole
    return named


def split_list(
    order: Sequence[ToolId], left: int, share: float, tokens: Tokens, name_cost: Callable[[ToolId], NameCost]
) -> tuple[list[ToolId], list[ToolId]]:
    """Fill a list: return the tools that it defines, and those that it names with the tokens that are left.

    `order`: the most needed tool first.
    """
    defined = fill_budget(order, tokens, left - int(share * left))
    if not share:
        return defined, []
    left -= sum(map(tokens, defined))
    shown = set(defined)
    return defined, fill_names((tool for tool in order if tool not in shown), name_cost, left)


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


# Growing


class Prediction(NamedTuple):
    """Which tools may be called next."""

    chances: Mapping[ToolId, float]
    """The probability of each tool, the likeliest first."""
    end: float
    """The probability that the task is done."""

    @property
    def goes_on(self) -> bool:
        """Whether a call of some tool is likelier than the end of the task."""
        return next(iter(self.chances.values()), 0.0) > self.end


class Fixed(Struct, frozen=True):
    """The rule until growing was learned. `is_sure`: whether the found tools probably suffice (`confidence`)."""

    most_found: int | None = MOST_FOUND
    """How many matches a discovery adds; None adds all of them, which is right without models."""

    def for_prompt(self, ranked: Sequence[Ranked], is_sure: bool, tokens: Tokens) -> list[ToolId]:
        return [each.tool for each in ranked[:MOST_FOUND]] if is_sure else []

    def for_discovery(self, ranked: Sequence[Ranked], is_sure: bool, tokens: Tokens) -> list[ToolId]:
        return [each.tool for each in ranked[: self.most_found]] if is_sure else []

    def for_next(self, chances: Mapping[ToolId, float], goes_on: bool, tokens: Tokens) -> list[ToolId]:
        return [tool for tool, chance in chances.items() if chance >= LEAST_NEXT][:MOST_NEXT] if goes_on else []


class Growth(Struct, frozen=True):
    """The rule that was learned from the log."""

    weights: tuple[float, ...]
    """One for each of `FEATURES`; they sum to the log-odds that a task needs the tool."""
    price: float
    """How many tokens it is worth to spare one hidden call."""
    base: int = 0
    """How many tokens a list begins with, besides our own two tools and pins."""
    models: dict[str, int] = {}
    """The number of each model whose scores the fit read, by kind."""
    encoders: str = ""
    """Their names joined by `+`."""

    def chances(self, ranked: Sequence[Ranked]) -> list[float]:
        """Return the probability that the task needs each of them, now or later."""
        return gains(self.weights, ranked)

    def for_prompt(self, ranked: Sequence[Ranked], is_sure: bool, tokens: Tokens) -> list[ToolId]:
        """Add the tools that are worth their tokens, the likeliest first. `is_sure` is not used: a doubtful ranking has
        low probabilities."""
        best = ranked[:DEPTH]
        chances = {each.tool: chance for each, chance in zip(best, self.chances(best), strict=True)}
        return sorted(self._worth(chances, tokens), key=chances.__getitem__, reverse=True)

    for_discovery = for_prompt

    def for_next(self, chances: Mapping[ToolId, float], goes_on: bool, tokens: Tokens) -> list[ToolId]:
        """Add all tools that are worth their tokens, if one is likely enough to grow at all."""
        worth = self._worth(chances, tokens)
        return worth if worth and chances[worth[0]] >= LEAST_NEXT else []

    def _worth(self, chances: Mapping[ToolId, float], tokens: Tokens) -> list[ToolId]:
        """Return the tools whose probability, times the price of a hidden call, is at least their tokens."""
        return [tool for tool, chance in chances.items() if chance * self.price >= tokens(tool)]


Rule = Fixed | Growth
"""Says what a list gains from a prompt, from a discovery, and from a `Prediction` whose tools are hidden."""


def gains(weights: Sequence[float], ranked: Sequence[Ranked]) -> list[float]:
    """Return the probability that the task needs each tool of a ranking; `weights`: one for each of `FEATURES`."""
    if not all(_LEARNED.isdisjoint(each.parts) for each in ranked):
        return [sigmoid(sum(map(mul, weights, each))) for each in growth_features(ranked)]
    # Without learned parts the same sums have three terms fewer, which are 0.
    best, unit, size = _scale(ranked)
    place, behind, high, found, *_, bias = weights
    high *= size
    return [
        sigmoid(sum((place * log(rank), behind * (unit * (score - best)), high, found * score, bias)))
        for rank, score in enumerate([each.score for each in ranked], 1)
    ]


def _scale(ranked: Sequence[Ranked]) -> tuple[float, float, float]:
    """Return the best score, the unit of shares of it, and its logarithm."""
    best = ranked[0].score if ranked else 0.0
    return best, UNIT / max(best, LEAST_BEST), log(1.0 + max(best, 0.0))


def growth_features(ranked: Sequence[Ranked]) -> list[tuple[float, ...]]:
    """Return the `FEATURES` of each tool of a ranking, best first."""
    best, unit, size = _scale(ranked)
    return [
        (
            log(rank), unit * (each.score - best), size,
            each.score - sum(each.parts.get(part, 0.0) for part in LEARNED),
            unit * each.parts.get("tasks", 0.0), each.parts.get("history", 0.0), unit * each.parts.get("new", 0.0), 1.0,
        )
        if not _LEARNED.isdisjoint(each.parts)
        else (log(rank), unit * (each.score - best), size, each.score, 0.0, 0.0, 0.0, 1.0)
        for rank, each in enumerate(ranked, 1)
    ]  # fmt: skip


def loads(data: bytes) -> Growth:
    """Decode a learned rule from JSON. Raises `msgspec.MsgspecError` for other bytes."""
    found = msgspec.json.decode(data, type=Growth)
    if len(found.weights) != len(FEATURES):
        raise msgspec.ValidationError(f"{len(found.weights)} weights for {len(FEATURES)} features")
    return found
