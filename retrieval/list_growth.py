"""Which tools a growing list gains for what was found or predicted, and how many tokens it begins with.

Until something was learned of growing, a few of the best (`FIXED`). Then those whose probability of being needed, times
what a hidden call costs, exceeds their tokens (`Growth`): `foretool learn` fits the probability and chooses the price
(`training.growth`), and leaves both as JSON. A ranking's scores have no scale of their own; what they are worth depends
on the models and encoders that made them, so a fit says which these were and counts for no others.

Imports nothing heavy: this is asked while a client waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, log
from operator import mul
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct

from foretool.retrieval.ranking import Ranked
from foretool.storage.records import ToolId

SIGNS = ("place", "behind", "best", "found", "tasks", "history", "new", "bias")
"""What the probability of a ranked tool is read from: the logarithm of its rank, how far its score is behind the best
one, the logarithm of the best one, what words and meaning gave it, what three learned parts gave it, and 1.

Weighing the parts anew matters: of the tools of 220 tasks of bfcl_multi_turn after 100, three a task hold 81 % so, 66 %
by place, score and best score, 65 % by place alone; of ultratool after 150 .87, .81, .79. What is added up to one score
is read as a share of the best one, for models that believe in themselves more with every run move it by tens."""
UNIT, LEAST_BEST = 5.0, 3.0
"""Such a share is in fifths, and of so much at least."""
LEARNED = ("tasks", "history", "new", "graph", "trained")
"""Parts of a score that models add; the rest is words, meaning, names and usage."""
DEPTH = 20
"""Tools of a ranking that may be listed."""
LEAST_NEXT = 0.15
"""The probability that a predicted tool must have for a list to grow after a call: a client that lists again waits for
it, and what it holds of the conversation in a cache is read anew."""
MOST_NEXT = 4
"""Tools a batch, where nothing was learned of growing."""
MOST_FOUND = 6
"""Matches that a list grows by for a prompt, and for a discovery once something was learned: the ranking is sharper
then, and more would cost tokens and show hardly anything that is needed."""
BASE_SHARE = 0.5
"""Of the budget, what a growing list begins with where nothing was learned of growing; the rest is for what the client
will turn out to need. Hidden calls on 100 tasks of ultratool (train) after 160, by what is kept free: 0 .60, .15 .50,
.25 .45, .4 .39, .5 .40, .6 .41; with prompts .09 at .5."""

Tokens = Callable[[ToolId], int]


class Prediction(NamedTuple):
    """What may be called next."""

    chances: Mapping[ToolId, float]
    """The likeliest first."""
    goes_on: bool
    """Whether some tool is likelier to be called than the task is to be done."""


def predicted(chances: Mapping[ToolId, float], end: float) -> Prediction:
    """From the probability of each tool to be next, the likeliest first, and of the task being done."""
    return Prediction(chances, next(iter(chances.values()), 0.0) > end)


class Rule(Protocol):
    """What a list gains. `is_sure`: whether the gate takes what was found for sufficient."""

    def for_prompt(self, ranked: Sequence[Ranked], is_sure: bool, tokens: Tokens) -> list[ToolId]: ...

    def for_discovery(self, ranked: Sequence[Ranked], is_sure: bool, tokens: Tokens) -> list[ToolId]: ...

    def for_next(self, chances: Mapping[ToolId, float], goes_on: bool, tokens: Tokens) -> list[ToolId]:
        """`chances`: of the hidden tools among those of a `Prediction`."""
        ...


class Fixed(Struct, frozen=True):
    """Where nothing was learned of growing."""

    most_found: int | None = MOST_FOUND
    """For a discovery; None: all that it found, where there are no models either."""

    def for_prompt(self, ranked: Sequence[Ranked], is_sure: bool, tokens: Tokens) -> list[ToolId]:
        return [each.tool for each in ranked[:MOST_FOUND]] if is_sure else []

    def for_discovery(self, ranked: Sequence[Ranked], is_sure: bool, tokens: Tokens) -> list[ToolId]:
        return [each.tool for each in ranked[: self.most_found]] if is_sure else []

    def for_next(self, chances: Mapping[ToolId, float], goes_on: bool, tokens: Tokens) -> list[ToolId]:
        return [tool for tool, chance in chances.items() if chance >= LEAST_NEXT][:MOST_NEXT] if goes_on else []


class Growth(Struct, frozen=True):
    """What the log says of growing (`Rule`)."""

    weights: tuple[float, ...]
    """One for each of `SIGNS`; log-odds that a task needs the tool."""
    price: float
    """Tokens that sparing one hidden call is worth."""
    base: int = 0
    """Tokens that a list begins with, besides our own two tools and pins."""
    models: dict[str, int] = {}
    """The number of each model that took part, by kind."""
    encoders: str = ""
    """Their names joined by `+`."""

    def chances(self, ranked: Sequence[Ranked]) -> list[float]:
        """The probability that the task needs each of them, now or later."""
        return [_sigma(sum(map(mul, self.weights, each))) for each in signs(ranked)]

    def is_worth(self, chance: float, tokens: int) -> bool:
        """Whether a tool needed with this probability is worth its tokens."""
        return chance * self.price >= tokens

    def for_prompt(self, ranked: Sequence[Ranked], is_sure: bool, tokens: Tokens) -> list[ToolId]:
        """Those that are worth their tokens, the likeliest first. The gate is not asked: a doubtful ranking has low
        probabilities."""
        best = ranked[:DEPTH]
        worth = [
            (-chance, place, each.tool)
            for place, (each, chance) in enumerate(zip(best, self.chances(best), strict=True))
            if self.is_worth(chance, tokens(each.tool))
        ]
        return [tool for _, _, tool in sorted(worth)]

    def for_discovery(self, ranked: Sequence[Ranked], is_sure: bool, tokens: Tokens) -> list[ToolId]:
        return self.for_prompt(ranked, is_sure, tokens)

    def for_next(self, chances: Mapping[ToolId, float], goes_on: bool, tokens: Tokens) -> list[ToolId]:
        """All that are worth their tokens, once one is likely enough to grow at all."""
        worth = [tool for tool, chance in chances.items() if self.is_worth(chance, tokens(tool))]
        return worth if worth and chances[worth[0]] >= LEAST_NEXT else []


def signs(ranked: Sequence[Ranked]) -> list[tuple[float, ...]]:
    """`SIGNS` of each of a ranking's first tools, best first."""
    best = ranked[0].score if ranked else 0.0
    unit = UNIT / max(best, LEAST_BEST)
    return [
        (
            log(rank), unit * (each.score - best), log(1.0 + max(best, 0.0)),
            each.score - sum(each.parts.get(part, 0.0) for part in LEARNED),
            unit * each.parts.get("tasks", 0.0), each.parts.get("history", 0.0), unit * each.parts.get("new", 0.0), 1.0,
        )
        for rank, each in enumerate(ranked, 1)
    ]  # fmt: skip


def dumps(growth: Growth) -> bytes:
    """As it is kept."""
    return msgspec.json.encode(growth)


def loads(data: bytes) -> Growth:
    """Raises `msgspec.MsgspecError` for bytes that are none."""
    found = msgspec.json.decode(data, type=Growth)
    if len(found.weights) != len(SIGNS):
        raise msgspec.ValidationError(f"{len(found.weights)} weights for {len(SIGNS)} signs")
    return found


def _sigma(x: float) -> float:
    return 1.0 / (1.0 + exp(-min(max(x, -30.0), 30.0)))
