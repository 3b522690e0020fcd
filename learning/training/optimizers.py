"""Optimizers in numpy, Adam for many weights and Newton's method for few, and the logarithm that losses are made of.

Adam (Kingma and Ba 2015, algorithm 1) has the decay of AdamW (Loshchilov and Hutter 2019) and works in place. Arrays
keep their type, float32 or float64; each step takes its rate and decay, so that they may change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.model_format import Floats

Doubles = NDArray[np.float64]
Objective = Callable[[Doubles], tuple[float, Doubles, Doubles]]
"""The loss of weights (weights,), its slope (weights,) and its curvature (weights, weights)."""

_FIRST_MOMENT: Final = 0.9
_SECOND_MOMENT: Final = 0.999
_TINY: Final = 1e-8
_CACHED = 16_384
"""Numbers of rows that are worked on at once: what is in the cache costs half."""
_STEPS = 30
_HALVINGS = 12
_STILL = 1e-7
"""A step whose every component is smaller ends the search."""


class Adam:
    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values
        self._first, self._second = np.zeros_like(values), np.zeros_like(values)
        self._scratch = np.empty_like(values)
        self._steps = 0

    def step(self, gradient: NDArray[Any], rate: float, decay: float = 0.0) -> None:
        """values <- (1 - rate x decay) values - rate x first / (sqrt(second) + TINY), with both moments corrected."""
        self._steps += 1
        scratch = self._scratch
        self._first *= _FIRST_MOMENT
        np.multiply(gradient, 1 - _FIRST_MOMENT, out=scratch)
        self._first += scratch
        self._second *= _SECOND_MOMENT
        np.multiply(gradient, gradient, out=scratch)
        scratch *= 1 - _SECOND_MOMENT
        self._second += scratch
        np.sqrt(self._second, out=scratch)
        scratch *= (1 - _SECOND_MOMENT**self._steps) ** -0.5
        scratch += _TINY
        np.divide(self._first, scratch, out=scratch)
        scratch *= rate / (1 - _FIRST_MOMENT**self._steps)
        if decay:
            self.values *= 1 - rate * decay
        self.values -= scratch


class RowAdam:
    """Optimizes some rows of one array at a time; the moments of rows without a gradient stay as they are.

    Each row counts its own steps: with the steps of the whole, the first step of a row that comes late would be three
    times the rate.
    """

    def __init__(self, values: Floats) -> None:
        self.values = values
        self._first, self._second = np.zeros_like(values), np.zeros_like(values)
        self._steps = np.zeros(len(values), np.float32)

    def step(self, rows: NDArray[np.int64], gradient: Floats, rate: float, decay: float = 0.0) -> None:
        """Take one step like `Adam.step` on these rows, which are distinct; `gradient` (rows, columns)."""
        at_once = max(_CACHED // max(self.values.shape[1], 1), 1)
        for start in range(0, len(rows), at_once):
            part = slice(start, start + at_once)
            self._step(rows[part], gradient[part], rate, decay)

    def _step(self, rows: NDArray[np.int64], gradient: Floats, rate: float, decay: float) -> None:
        self._steps[rows] += 1
        steps = self._steps[rows][:, None]
        scratch = np.multiply(gradient, 1 - _FIRST_MOMENT)
        first = self._first[rows]
        first *= _FIRST_MOMENT
        first += scratch
        self._first[rows] = first
        np.multiply(gradient, 1 - _SECOND_MOMENT, out=scratch)
        scratch *= gradient
        second = self._second[rows]
        second *= _SECOND_MOMENT
        second += scratch
        self._second[rows] = second
        second /= 1 - _SECOND_MOMENT**steps
        np.sqrt(second, out=second)
        second += _TINY
        first /= 1 - _FIRST_MOMENT**steps
        first *= rate
        first /= second
        values = self.values[rows]
        values *= 1 - rate * decay
        values -= first
        self.values[rows] = values


def minimize(objective: Objective, start: Doubles, steps: int = _STEPS) -> Doubles:
    """Return the weights of the least loss that the steps lead to from `start`."""
    weights = start.copy()
    loss, slope, curve = objective(weights)
    for _ in range(steps):
        step = np.linalg.solve(curve, slope)
        if np.abs(step).max(initial=0.0) < _STILL:
            break
        # Far from the minimum a whole step may lead further away.
        for _ in range(_HALVINGS):
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
    """Return the weights (columns,) of a logistic regression, pulled to `prior` (0 unless given) by `ridge`.

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


def log_softmax(scores: Any, xp: Any = np) -> Any:
    """Turn scores (..., classes) into the logarithm of shares; `xp` is numpy or torch."""
    shifted = scores - xp.amax(scores, -1)[..., None]
    return shifted - xp.log(xp.sum(xp.exp(shifted), -1))[..., None]
