"""Fits weights by Newton's method, each step halved until it lowers the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Objective = Callable[[Doubles], tuple[float, Doubles, Doubles]]
"""The loss of weights (weights,), its slope (weights,) and its curvature (weights, weights)."""

STEPS = 30
HALVINGS = 12
STILL = 1e-7
"""A step whose every component is smaller ends the search."""


def minimize(objective: Objective, start: Doubles, steps: int = STEPS) -> Doubles:
    """Returns the weights of the least loss that the steps lead to from `start`."""
    weights = start.copy()
    loss, slope, curve = objective(weights)
    for _ in range(steps):
        step = np.linalg.solve(curve, slope)
        if np.abs(step).max(initial=0.0) < STILL:
            break
        # Far from the minimum a whole step may lead further away.
        for _ in range(HALVINGS):
            found = objective(weights - step)
            if found[0] <= loss:
                break
            step = step / 2
        else:
            break
        weights, (loss, slope, curve) = weights - step, found
    return weights


def logistic_regression(
    inputs: Doubles, wanted: NDArray[Any], share: NDArray[Any], ridge: float, prior: Doubles | None = None
) -> Doubles:
    """Weights (columns,) of a logistic regression, pulled to `prior` (0 unless given) by `ridge`.

    `inputs` (rows, columns); `wanted` (rows,) between 0 and 1; each row counts its `share`.
    """
    start = np.zeros(inputs.shape[1]) if prior is None else prior

    def objective(weights: Doubles) -> tuple[float, Doubles, Doubles]:
        logits = np.clip(inputs @ weights, -30.0, 30.0)
        chance = 1.0 / (1.0 + np.exp(-logits))
        away = weights - start
        loss = float((share * (np.logaddexp(0.0, logits) - wanted * logits)).sum() + 0.5 * ridge * away @ away)
        slope = inputs.T @ (share * (chance - wanted)) + ridge * away
        curve = (inputs * (share * chance * (1.0 - chance))[:, None]).T @ inputs + ridge * np.eye(len(weights))
        return loss, slope, curve

    return minimize(objective, start)
