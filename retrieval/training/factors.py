"""Refits the weights of the parts of a score on the log, with the shipped weights as prior.

Every step of replayed tasks gives a matrix of parts by tool, and the tool that was called. With factors f, one for each
part, and a sharpness s, the loss is the mean of -log softmax(s x sum_p f_p part_p)[called], plus `PRIOR_STEPS` / steps
x (f_p - 1)^2: f = 1 is what ships, and a log of few steps hardly moves it. The sharpness is fitted first, with the
shipped weights, and then held. A factor is never negative: a part may come to count for nothing, not against a tool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.score_sum import Floats
from foretool.retrieval.training.optimizers import Adam, Doubles, log_softmax
from foretool.retrieval.training.replay import DEPTH, StepRanks, steps
from foretool.storage.records import Episode, ToolId, Usage

PRIOR_STEPS: Final = 40.0
"""The number of steps that the shipped weights are worth."""
SHARPNESSES: Final = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
ROUNDS: Final = 400
RATE: Final = 0.05
LEFT_OUT: Final = frozenset({"line", "graph", "new"})
"""Parts that follow from others, and so are not fitted."""


class ScoredStep(Struct, frozen=True):
    """One step: the parts of every tool's score, and the tool that was called."""

    episode: int
    parts: dict[str, Floats]
    """(tools,) each, of the tools that exist."""
    called: int
    """The place of the called tool among them."""


def score_parts(
    pipeline: Pipeline,
    episodes: Sequence[Episode],
    upstream_of: Mapping[ToolId, str],
    usage: Mapping[ToolId, Usage] | None = None,
) -> Iterator[ScoredStep]:
    """Yields the steps of which the ranking has parts."""
    for number, episode in enumerate(episodes):
        for query, tool in steps(episode, upstream_of):
            parts = pipeline.parts(query, usage)
            slot = pipeline.corpus.slot_of.get(tool)
            if parts and slot is not None:
                live = np.asarray([each is not None for each in pipeline.corpus.ids], np.bool_)
                kept = {name: part[live] for name, part in parts.items() if name not in LEFT_OUT}
                yield ScoredStep(number, kept, int(live[:slot].sum()))


def fit(found: Sequence[ScoredStep]) -> dict[str, float]:
    """Fits a factor for each part; {} without steps."""
    names = sorted({name for each in found for name in each.parts})
    if not names:
        return {}
    held = []  # (parts, tools) of each step
    for each in found:
        nothing = np.zeros_like(next(iter(each.parts.values())))
        held.append(np.stack([each.parts.get(name, nothing) for name in names]))
    called = [each.called for each in found]
    factors = np.ones(len(names))
    sharpness = min(SHARPNESSES, key=lambda each: _loss(held, called, factors, each))
    adam = Adam(factors)
    for _ in range(ROUNDS):
        gradient = _gradient(held, called, factors, sharpness)
        gradient += 2.0 * PRIOR_STEPS / len(found) * (factors - 1.0)
        adam.step(gradient, RATE)
        np.maximum(factors, 0.0, out=factors)
    return {name: round(float(factor), 3) for name, factor in zip(names, factors, strict=True)}


def _loss(held: Sequence[Floats], called: Sequence[int], factors: Doubles, sharpness: float) -> float:
    """The mean loss over steps, without the prior."""
    pairs = zip(held, called, strict=True)
    return -sum(float(log_softmax(sharpness * (factors @ parts))[place]) for parts, place in pairs) / len(held)


def _gradient(held: Sequence[Floats], called: Sequence[int], factors: Doubles, sharpness: float) -> Doubles:
    """The mean gradient over steps, (factors,)."""
    total = np.zeros(len(factors))
    for parts, place in zip(held, called, strict=True):
        chances = np.exp(log_softmax(sharpness * (factors @ parts)))
        chances[place] -= 1.0
        total += sharpness * (parts @ chances)
    return total / len(held)


def rank_called(found: Sequence[ScoredStep], factors: Mapping[str, float]) -> list[StepRanks]:
    """The ranks of the called tools under these factors, by episode."""
    ranks: dict[int, list[int]] = {}
    for each in found:
        scores = np.sum([factors.get(name, 1.0) * part for name, part in each.parts.items()], axis=0)
        rank = 1 + int((scores > scores[each.called]).sum())
        ranks.setdefault(each.episode, []).append(rank if rank <= DEPTH else 0)
    return [StepRanks(tuple(each)) for each in ranks.values()]


def rank_crossed(found: Sequence[ScoredStep]) -> list[StepRanks]:
    """The ranks with factors that were fitted on the other half of the episodes."""
    numbers = sorted({each.episode for each in found})
    middle = numbers[len(numbers) // 2] if numbers else 0
    halves = [each for each in found if each.episode < middle], [each for each in found if each.episode >= middle]
    if not all(halves):
        return rank_called(found, {})
    return rank_called(halves[0], fit(halves[1])) + rank_called(halves[1], fit(halves[0]))
