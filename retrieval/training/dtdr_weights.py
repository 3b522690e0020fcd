"""Fits the listwise layer of DTDR: the weights of its parts, on steps that the networks beside it have not seen.

The weights of tools that nobody called are learned where a tenth of the tools are missing from training, with every
task that took one of them, as if they were installed a day later.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.model_format import Floats
from foretool.retrieval.rankers.dtdr import Dtdr
from foretool.retrieval.rankers.dtdr_model import PARTS
from foretool.retrieval.training.demonstrations import TrainingSet
from foretool.retrieval.training.optimizers import Doubles, log_softmax, minimize

NEWTON_STEPS = 8
PRIOR = dict.fromkeys(PARTS, 0.0) | {
    "network": 0.7, "neighbours": 0.1, "meaning": 0.3, "name": 0.5, "unseen": 0.0, "unseen_meaning": 0.6,
    "unseen_name": 0.8, "unseen_called": -2.0, "unseen_aim": 0.5, "unseen_sure": -1.0, "arrived": 1.0
}  # fmt: skip
"""The weights that the fitted ones are pulled to, and keep where there is nothing to fit them on."""
OF_UNSEEN = tuple(name for name in PARTS if name.startswith("unseen") or name == "arrived")
ONE_IN = 10
"""Every tenth tool, in the order of their calls, is new while the weights of new tools are learned, so that tools that
are used much and little both have their share."""


class ListwiseStep(NamedTuple):
    """One prediction as the listwise layer sees it."""

    parts: Floats
    """(parts, slots and END)."""
    target: Floats
    """(slots and END,), adding up to 1."""


def listwise_steps(judge: Dtdr, held: TrainingSet, most: int, seed: int, *, said: bool) -> list[ListwiseStep]:
    """At most `most` steps of demonstrations that the judge has not seen, with or without their task."""
    slots = judge.slots
    classes = len(held.tools)
    steps = [(number, step) for number, each in enumerate(held.demonstrations) for step in each.steps(classes)]
    random.Random(seed).shuffle(steps)  # noqa: S311 (a sample, not a secret)
    found: list[ListwiseStep] = []
    for number, step in sorted(steps[:most]):
        task = held.demonstrations[number].task if said else ""
        vector = held.vectors[number] if said and held.vectors.shape[1] else None
        end = [len(judge.live)] * (classes in step.acceptable)
        wanted = [
            slots[tool] for call in step.acceptable if call < classes and (tool := held.tools[call]) in slots
        ] + end
        if wanted:
            target = np.zeros(len(judge.live) + 1, np.float32)
            target[wanted] = 1 / len(wanted)
            history = [held.tools[call] for call in step.history]
            found.append(ListwiseStep(judge.parts(history, judge.of_task(vector, (task,) if task else ())), target))
    return found


def fit_listwise(known: Sequence[ListwiseStep], hidden: Sequence[ListwiseStep], ridge: float) -> tuple[float, ...]:
    """Fits the weights of tools that training saw on `known`, then those of unseen tools on `hidden`, where some tools
    were hidden; the others stay as they are."""
    start = np.asarray([PRIOR[name] for name in PARTS])
    of_unseen = np.asarray([name in OF_UNSEEN for name in PARTS])
    weights = fit_weights(hidden, fit_weights(known, start, ~of_unseen, ridge), of_unseen, ridge)
    return tuple(round(float(each), 5) for each in weights)


def fit_weights(
    given: Sequence[ListwiseStep], start: NDArray[np.float64], free: NDArray[np.bool_], ridge: float
) -> NDArray[np.float64]:
    """Softmax regression over the `free` weights, pulled to where they start by `ridge`."""

    def objective(some: Doubles) -> tuple[float, Doubles, Doubles]:
        """Cross-entropy plus the pull, its slope and its curvature."""
        weights, away = start.copy(), some - start[free]
        weights[free] = some
        value = ridge * float(away @ away) / 2
        slope = ridge * away
        curve = ridge * np.eye(len(some))
        for parts, target in given:
            shares = log_softmax(weights.astype(np.float32) @ parts)
            chance, own = np.exp(shares), parts[free]
            mean = own @ chance
            value -= float(shares @ target)
            slope = slope + mean - own @ target
            curve += (own * chance) @ own.T - np.outer(mean, mean)
        return value, slope, curve

    weights = start.copy()
    weights[free] = minimize(objective, start[free], NEWTON_STEPS) if given else start[free]
    return weights


def choose_new(calls: Sequence[int], seed: int) -> set[int]:
    """Chooses one in `ONE_IN` of the calls, spread over the whole list, and at least one."""
    first = random.Random(seed).randrange(min(ONE_IN, len(calls)))  # noqa: S311 (a sample, not a secret)
    return set(calls[first::ONE_IN])
