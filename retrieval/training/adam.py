"""Adam (Kingma and Ba 2015, algorithm 1) with the decay of AdamW (Loshchilov and Hutter 2019), in numpy and in place.

Arrays keep their type, float32 or float64. Each step takes its rate and decay, so that they may change.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.model_format import Floats

FIRST_MOMENT: Final = 0.9
SECOND_MOMENT: Final = 0.999
TINY: Final = 1e-8


class Adam:
    """Optimizes one array."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values
        self._first, self._second = np.zeros_like(values), np.zeros_like(values)
        self._scratch = np.empty_like(values)
        self._steps = 0

    def step(self, gradient: NDArray[Any], rate: float, decay: float = 0.0) -> None:
        """values <- (1 - rate x decay) values - rate x first / (sqrt(second) + TINY), with both moments corrected."""
        self._steps += 1
        scratch = self._scratch
        self._first *= FIRST_MOMENT
        np.multiply(gradient, 1 - FIRST_MOMENT, out=scratch)
        self._first += scratch
        self._second *= SECOND_MOMENT
        np.multiply(gradient, gradient, out=scratch)
        scratch *= 1 - SECOND_MOMENT
        self._second += scratch
        np.sqrt(self._second, out=scratch)
        scratch *= (1 - SECOND_MOMENT**self._steps) ** -0.5
        scratch += TINY
        np.divide(self._first, scratch, out=scratch)
        scratch *= rate / (1 - FIRST_MOMENT**self._steps)
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
        """Takes one step like `Adam.step` on these rows, which are distinct; `gradient` (rows, columns)."""
        self._steps[rows] += 1
        steps = self._steps[rows][:, None]
        first = FIRST_MOMENT * self._first[rows] + (1 - FIRST_MOMENT) * gradient
        second = SECOND_MOMENT * self._second[rows] + (1 - SECOND_MOMENT) * gradient * gradient
        self._first[rows], self._second[rows] = first, second
        scale = np.sqrt(second / (1 - SECOND_MOMENT**steps)) + TINY
        moved = rate * (first / (1 - FIRST_MOMENT**steps)) / scale
        self.values[rows] = (1 - rate * decay) * self.values[rows] - moved
