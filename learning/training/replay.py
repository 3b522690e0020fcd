"""Replays later tasks: where would the tool that was called next have stood, with one set of models and with another?

Every call of an episode is one step, whose query is the task's words, if they are known, and the calls before it. Two
sets of models are compared over the same episodes; one is better if it is so outside the error of the comparison.

The same steps refit the weights of the parts of a score, with the shipped weights as prior. Every step gives a matrix
of parts by tool, and the tool that was called. With factors f, one for each part, and a sharpness s, the loss is the
mean of -log softmax(s x sum_p f_p part_p)[called], plus `PRIOR_STEPS` / steps x (f_p - 1)^2: f = 1 is what ships, and a
log of few steps hardly moves it. The sharpness is fitted first, with the shipped weights, and then held. A factor is
never negative: a part may come to count for nothing, not against a tool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.learning.results import paired_difference
from foretool.learning.training.optimizers import Adam, Doubles, log_softmax
from foretool.retrieval.model_format import Floats
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import Query, task_lines
from foretool.storage.records import Episode, ToolId, Usage

_DEPTH: Final = 10
"""A tool of a lower rank counts as not found."""
_LONGEST: Final = 20
"""Calls of one episode that are replayed, from its start."""
_SERVERS: Final = 3
"""The number of upstreams called last that count as in use."""
PRIOR_STEPS: Final = 40.0
"""The number of steps that the shipped weights are worth."""
_MOST_TOOLS: Final = 400
"""Tools of one step that factors are fitted on, those of the highest scores; no other weighs in the softmax."""
_SHARPNESSES: Final = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
_ROUNDS: Final = 400
_RATE: Final = 0.05
_LEFT_OUT: Final = frozenset({"line", "graph", "new"})
"""Parts that follow from others, and so are not fitted."""

Places = NDArray[np.int64]


class StepRanks(Struct, frozen=True):
    """The rank of the called tool at each step of one episode, 0 beyond `_DEPTH`."""

    ranks: tuple[int, ...]

    @property
    def reciprocal(self) -> float:
        """The mean reciprocal rank over the steps."""
        return fmean(1.0 / rank if rank else 0.0 for rank in self.ranks)

    def found(self, k: int) -> float:
        """Return the share of the steps whose tool was among the first k."""
        return fmean(0 < rank <= k for rank in self.ranks)


class Comparison(Struct, frozen=True):
    """Means of the old and the new ranks over the same episodes."""

    episodes: int
    steps: int
    old: dict[str, float]
    new: dict[str, float]
    difference: tuple[float, float, float]
    """The difference of the reciprocal ranks: lower end of the 95 % interval, mean, upper end."""
    top5: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The difference of the share among the first five, likewise."""

    @property
    def is_better(self) -> bool:
        """Whether the new ranks are better outside the error, or more tools are among the first five, and neither is
        worse outside the error, nor the first five in the mean: they are what an answer shows."""
        return max(self.difference[0], self.top5[0]) > 0.0 and not (self.is_worse or self.shows_fewer)

    @property
    def may_follow(self) -> bool:
        """Whether the new model may replace one of its own method that knows less of the log: its ranks are better in
        the mean, and neither measure is worse outside the error."""
        return self.difference[1] > 0.0 and not self.is_worse

    @property
    def shows_fewer(self) -> bool:
        """Whether fewer of the called tools are among the first five, in the mean."""
        return self.top5[1] < 0.0

    @property
    def is_worse(self) -> bool:
        """Whether either measure is worse outside the error."""
        return min(self.difference[2], self.top5[2]) < 0.0

    def report(self) -> dict[str, Any]:
        return {
            "replayed": self.episodes, "steps": self.steps, "old": self.old, "new": self.new,
            "difference": list(self.difference), "top5": list(self.top5),
        }  # fmt: skip


def query_after(task: str, history: tuple[ToolId, ...], upstream_of: Mapping[ToolId, str]) -> Query:
    """Return the query of a task after these calls; the servers in use are those that were called last."""
    lines = task_lines(task)
    lately = (upstream_of[each] for each in reversed(history) if each in upstream_of)
    return Query(lines, (), history, tuple(dict.fromkeys(lately))[:_SERVERS])


def replay_steps(episode: Episode, upstream_of: Mapping[ToolId, str]) -> Iterator[tuple[Query, ToolId]]:
    """Yield the query before each call, and the called tool; a tool that is gone is only part of the history."""
    task = episode.tasks[0] if episode.tasks else ""
    for place, tool in enumerate(episode.calls[:_LONGEST]):
        if tool in upstream_of:
            yield query_after(task, episode.calls[:place], upstream_of), tool


def rank_steps(
    pipeline: Pipeline,
    episodes: Sequence[Episode],
    upstream_of: Mapping[ToolId, str],
    usage: Mapping[ToolId, Usage] | None = None,
) -> list[StepRanks]:
    """Rank the called tools of each episode that has a step."""
    found = []
    for episode in episodes:
        ranks = [
            pipeline.rank(query, usage, _DEPTH).rank_of(tool) for query, tool in replay_steps(episode, upstream_of)
        ]
        if ranks:
            found.append(StepRanks(tuple(ranks)))
    return found


def compare_ranks(old: Sequence[StepRanks], new: Sequence[StepRanks]) -> Comparison:
    return Comparison(
        len(old), sum(len(each.ranks) for each in old), _means(old), _means(new),
        paired_difference([each.reciprocal for each in new], [each.reciprocal for each in old]),
        paired_difference([each.found(5) for each in new], [each.found(5) for each in old]),
    )  # fmt: skip


def _means(walks: Sequence[StepRanks]) -> dict[str, float]:
    if not walks:
        return {"mrr": 0.0, "top5": 0.0, "top10": 0.0}
    return {
        "mrr": round(fmean(each.reciprocal for each in walks), 4),
        "top5": round(fmean(each.found(5) for each in walks), 4),
        "top10": round(fmean(each.found(10) for each in walks), 4),
    }


class ScoredStep(Struct, frozen=True):
    """One step of an episode: the parts of every tool's score, and the tool that was called."""

    episode: int
    parts: dict[str, Floats]
    """(tools,) each, of the best tools that exist and the called one."""
    called: int
    """The place of the called tool among them."""


def steps_with_parts(
    pipeline: Pipeline,
    episodes: Sequence[Episode],
    upstream_of: Mapping[ToolId, str],
    usage: Mapping[ToolId, Usage] | None = None,
) -> Iterator[ScoredStep]:
    """Yield each step whose ranking consists of parts, with the parts of every tool's score, for fitting factors."""
    for number, episode in enumerate(episodes):
        for query, tool in replay_steps(episode, upstream_of):
            parts = pipeline.parts(query, usage)
            slot = pipeline.corpus.slot_of.get(tool)
            if parts and slot is not None:
                live = np.asarray([each is not None for each in pipeline.corpus.ids], np.bool_)
                fitted = {name: part for name, part in parts.items() if name not in _LEFT_OUT}
                best = np.flatnonzero(live)
                if len(best) > _MOST_TOOLS:
                    order = np.argsort(-np.sum(list(fitted.values()), axis=0)[best], kind="stable")
                    best = best[order[:_MOST_TOOLS]]
                    if slot not in best:
                        best[-1] = slot
                    best.sort()
                kept = {name: part[best] for name, part in fitted.items()}
                yield ScoredStep(number, kept, int(np.searchsorted(best, slot)))


def fit_factors(found: Sequence[ScoredStep]) -> dict[str, float]:
    """Fit a factor for each part; {} without steps."""
    names = sorted({name for each in found for name in each.parts})
    if not names:
        return {}
    nothing = np.zeros_like(next(iter(found[0].parts.values())))
    # (parts, steps, tools), so that a sum over parts reads the memory in its order.
    held = np.stack([[each.parts.get(name, nothing) for each in found] for name in names])
    called = np.asarray([each.called for each in found])
    factors = np.ones(len(names))
    sharpness = min(_SHARPNESSES, key=lambda each: _loss(held, called, factors, each))
    adam = Adam(factors)
    for _ in range(_ROUNDS):
        gradient = _gradient(held, called, factors, sharpness)
        gradient += 2.0 * PRIOR_STEPS / len(found) * (factors - 1.0)
        adam.step(gradient, _RATE)
        np.maximum(factors, 0.0, out=factors)
    return {name: round(float(factor), 3) for name, factor in zip(names, factors, strict=True)}


def _shares(held: Floats, factors: Doubles, sharpness: float) -> Floats:
    """Return the logarithm of each tool's share, (steps, tools); `held` (parts, steps, tools)."""
    summed = (sharpness * factors).astype(np.float32) @ held.reshape(len(held), -1)
    shares: Floats = log_softmax(summed.reshape(held.shape[1:]))
    return shares


def _loss(held: Floats, called: Places, factors: Doubles, sharpness: float) -> float:
    """Return the mean loss over steps, without the prior; `called` (steps,)."""
    return -float(_shares(held, factors, sharpness)[np.arange(len(called)), called].mean())


def _gradient(held: Floats, called: Places, factors: Doubles, sharpness: float) -> Doubles:
    """Return the mean gradient over steps, (factors,)."""
    chances = np.exp(_shares(held, factors, sharpness))
    chances[np.arange(len(called)), called] -= np.float32(1.0)
    found: Doubles = sharpness * (held.reshape(len(held), -1) @ chances.ravel()).astype(np.float64) / len(called)
    return found


def rank_called(found: Sequence[ScoredStep], factors: Mapping[str, float]) -> list[StepRanks]:
    """Return the ranks of the called tools, by episode, if the parts of scores are multiplied by these factors."""
    ranks: dict[int, list[int]] = {}
    for each in found:
        scores = np.sum([factors.get(name, 1.0) * part for name, part in each.parts.items()], axis=0)
        rank = 1 + int((scores > scores[each.called]).sum())
        ranks.setdefault(each.episode, []).append(rank if rank <= _DEPTH else 0)
    return [StepRanks(tuple(each)) for each in ranks.values()]


def rank_crossed(found: Sequence[ScoredStep]) -> list[StepRanks]:
    """Return the ranks of the called tools, by episode. Each half of the episodes is ranked with factors that were
    fitted on the other half."""
    numbers = sorted({each.episode for each in found})
    middle = numbers[len(numbers) // 2] if numbers else 0
    halves = [each for each in found if each.episode < middle], [each for each in found if each.episode >= middle]
    if not all(halves):
        return rank_called(found, {})
    return rank_called(halves[0], fit_factors(halves[1])) + rank_called(halves[1], fit_factors(halves[0]))
