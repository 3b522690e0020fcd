"""Predicts the text of the next call's tool: a linear map from the task and the calls so far to a text's vector.

A model that counts calls can name only tools that were called. This one expects a text: after a search, the text of a
booking. So it says which of the tools that nobody ever called fit this step, not only which fit the whole task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from foretool.retrieval.model_format import Floats

PLACES = 4
"""Numbers of calls that differ: none, one, two, more."""


class NextText(NamedTuple):
    """The weights of the map; `dimension` is that of tools' texts, 0 if they have no vectors."""

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
        """(dimension,): what the calls add to the task's part of the prediction."""
        found: Floats = features @ self.calls
        return found


def no_next_text(task: int) -> NextText:
    """A map from tasks of this dimension that predicts no text."""
    return NextText(*(np.zeros(shape, np.float32) for shape in ((task, 0), (PLACES, 0), (0,))))


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
    """(tools,): the distance of each text from the centre."""
    found: Floats = np.maximum(np.linalg.norm(texts - centre, axis=1), np.float32(1e-6))
    return found
