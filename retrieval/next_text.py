"""Where the text of the next call's tool lies: a linear map from the task and the calls so far to a text's vector.

What counts calls can name only tools that were called. This one expects a text: after a search, that of a booking. So
it says which of the tools that nobody ever called fit this step of the task, not only which are like the whole task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from foretool.retrieval.model_format import Floats

PLACES = 4
"""Numbers of calls that are told apart: none, one, two, more."""


class Aim(NamedTuple):
    """The weights; `dimension` is that of tools' texts, 0 where they have no vectors."""

    task: Floats
    """(dimension of a task's vector, dimension)."""
    calls: Floats
    """(rows of `features`, dimension)."""
    centre: Floats
    """(dimension,): the mean text of the tools that were called."""

    @property
    def dimension(self) -> int:
        return len(self.centre)

    def expected(self, features: Floats) -> Floats:
        """(dimension,): what the calls add to what the task says."""
        found: Floats = features @ self.calls
        return found


def nothing(task: int) -> Aim:
    """Of tasks of this dimension, over no texts."""
    return Aim(*(np.zeros(shape, np.float32) for shape in ((task, 0), (PLACES, 0), (0,))))


def features(called: Sequence[Floats], calls: int, dimension: int) -> Floats:
    """[mean of the called tools' texts ; the last one ; how many], (2 dimension + `PLACES`,).

    `called`: vectors of the texts that are known, oldest first; `calls`: how many calls there were.
    """
    found = np.zeros(2 * dimension + PLACES, np.float32)
    if called:
        found[:dimension] = np.mean(called, 0)
        found[dimension : 2 * dimension] = called[-1]
    found[2 * dimension + min(calls, PLACES - 1)] = 1
    return found


def lengths(texts: Floats, centre: Floats) -> Floats:
    """(tools,): how far each text is from the centre."""
    found: Floats = np.maximum(np.linalg.norm(texts - centre, axis=1), np.float32(1e-6))
    return found
