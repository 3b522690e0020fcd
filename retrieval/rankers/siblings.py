"""What the other tools of its server say for a tool: a server that fits a task as a whole lifts each of its tools.

People who write a tool's text leave out what its server is about, and one word met by chance lifts a tool of a server
that has nothing to do with the task. So each server gets the soft mean of its tools' scores, and its tools get as much
more as their server stands above the others, up to `MOST`. A mean, because a server must not gain by listing more; a
soft one, because one tool that fits well says more than many that do not.

This module imports numpy: only a process with an encoder imports it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.model_format import Floats

SOFTNESS = 2.0
"""In units of a score: at 0 a server would count as its best tool, far above as its average one."""
SHARE = 0.6
"""What a server's mean counts beside a tool's own score."""
MOST = 0.7
"""What a server adds to a tool at most: as much as one standard deviation of an encoder."""
_HIGHEST = 60.0
"""Scores above this count as this, so that no exponential overflows."""


class Siblings:
    """Knows which slots belong to one server."""

    def __init__(self, servers: Sequence[Sequence[int]] = ()) -> None:
        """`servers`: the slots of each server that has any."""
        filled = [slots for slots in servers if slots]
        self._sizes = np.asarray([len(slots) for slots in filled], np.int64)
        self._slots: NDArray[np.int64] = np.asarray([slot for slots in filled for slot in slots], np.int64)
        self._starts = np.cumsum(self._sizes) - self._sizes

    def lifts(self, total: Floats) -> Floats | None:
        """Return what to add to (slots,) scores, 0 to `MOST`; None where there are no two servers to compare."""
        if len(self._sizes) < 2:
            return None
        fit = np.exp(np.minimum(total[self._slots], _HIGHEST) / SOFTNESS)  # 0 for a dropped tool
        means = SHARE * SOFTNESS * np.log(np.add.reduceat(fit, self._starts) / self._sizes + 1e-30)
        found = np.zeros_like(total)
        found[self._slots] = np.repeat(np.maximum(means - means.max() + MOST, 0.0), self._sizes)
        return found
