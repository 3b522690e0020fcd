"""Replays later tasks: where would the tool that was called next have stood, with one set of models and with another?

Every call of an episode is one step, whose query is the task's words, if they are known, and the calls before it. Two
sets of models are compared over the same episodes; one is better if it is so outside the error of the comparison.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from msgspec import Struct

from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import Query
from foretool.storage.records import Episode, ToolId, Usage

DEPTH: Final = 10
"""A tool of a lower rank counts as not found."""
RESAMPLES: Final = 1000
SEED: Final = 7
SERVERS: Final = 3
"""The number of upstreams called last that count as in use."""


class StepRanks(Struct, frozen=True):
    """The rank of the called tool at each step of one episode, 0 beyond `DEPTH`."""

    ranks: tuple[int, ...]

    @property
    def reciprocal(self) -> float:
        """The mean reciprocal rank over the steps."""
        return fmean(1.0 / rank if rank else 0.0 for rank in self.ranks)

    def found(self, k: int) -> float:
        """The share of the steps whose tool was among the first k."""
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
        worse outside the error."""
        return max(self.difference[0], self.top5[0]) > 0.0 and not self.is_worse

    @property
    def may_follow(self) -> bool:
        """Whether the new model may replace one of its own method that knows less of the log: its ranks are better in
        the mean, and neither measure is worse outside the error."""
        return self.difference[1] > 0.0 and not self.is_worse

    @property
    def is_worse(self) -> bool:
        """Whether either measure is worse outside the error."""
        return min(self.difference[2], self.top5[2]) < 0.0

    def report(self) -> dict[str, Any]:
        """The figures for a model's report."""
        return {
            "replayed": self.episodes, "steps": self.steps, "old": self.old, "new": self.new,
            "difference": list(self.difference), "top5": list(self.top5),
        }  # fmt: skip


def query_after(task: str, history: tuple[ToolId, ...], upstream_of: Mapping[ToolId, str]) -> Query:
    """The query of a task after these calls; the servers in use are those that were called last."""
    lines = tuple(line.strip() for line in task.splitlines() if line.strip())
    lately = (upstream_of[each] for each in reversed(history) if each in upstream_of)
    return Query(lines, (), history, tuple(dict.fromkeys(lately))[:SERVERS])


def steps(episode: Episode, upstream_of: Mapping[ToolId, str]) -> Iterator[tuple[Query, ToolId]]:
    """Yields the query before each call, and the called tool; a tool that is gone is only part of the history."""
    task = episode.tasks[0] if episode.tasks else ""
    for place, tool in enumerate(episode.calls):
        if tool in upstream_of:
            yield query_after(task, episode.calls[:place], upstream_of), tool


def rank_steps(
    pipeline: Pipeline,
    episodes: Sequence[Episode],
    upstream_of: Mapping[ToolId, str],
    usage: Mapping[ToolId, Usage] | None = None,
) -> list[StepRanks]:
    """Ranks the called tools of each episode that has a step."""
    found = []
    for episode in episodes:
        ranks = [pipeline.rank(query, usage, DEPTH).rank_of(tool) for query, tool in steps(episode, upstream_of)]
        if ranks:
            found.append(StepRanks(tuple(ranks)))
    return found


def compare(old: Sequence[StepRanks], new: Sequence[StepRanks]) -> Comparison:
    """Compares the ranks of the same episodes."""
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


# Intervals


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean."""
    draw = random.Random(SEED).choices  # noqa: S311 (resampling, not a secret)
    means = sorted(fmean(draw(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]


def paired_difference(ours: Sequence[float], theirs: Sequence[float], digits: int = 4) -> tuple[float, float, float]:
    """The mean difference over the same queries: lower end of the 95 % interval, mean, upper end; 0 without queries."""
    if not ours:
        return 0.0, 0.0, 0.0
    low, high = interval([a - b for a, b in zip(ours, theirs, strict=True)])
    return round(low, digits), round(fmean(ours) - fmean(theirs), digits), round(high, digits)
