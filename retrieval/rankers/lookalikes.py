"""What tools of other servers that do nearly the same say for a tool.

Every tool that does a deed meets a task with that one need, and authors describe the deed in different words. So a tool
rises where tools much like it fit the task, even if the task hardly reads like the tool itself. Each server speaks
once, by the tool that says most, so listing copies gains a server nothing.

This module imports numpy: only a process with an encoder imports it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.model_format import Floats

SHARE = 0.8
"""What the mean score of such tools counts beside a tool's own."""
ALIKE = {"minilm": 0.5}
"""By encoder, the cosine of two tools from which on they are alike. The taught encoder gains nothing by it
(docs/decisions/0054), and the scale of other encoders is not known."""
DOUBT = 1.0
"""So many tools of score 0 are added to each mean, so one tool that says the same counts half as much as many."""
LOOKED_AT = 50
"""How many of the best tools take part."""


def lookalike_lifts(
    total: Floats, servers: NDArray[np.int64], vectors: Callable[[NDArray[np.int64]], Floats], alike: float
) -> dict[int, float]:
    """Return what to add to some slots; `total` and `servers` are (slots,), `vectors` returns those of some slots as
    (slots, dimension), `alike` is the encoder's in `ALIKE`."""
    most = min(LOOKED_AT, len(total))
    best = np.argpartition(-total, most - 1)[:most] if most else np.empty(0, np.int64)
    best = best[total[best] > 0]
    best = best[np.argsort(servers[best], kind="stable")]
    if len(best) < 2:
        return {}
    rows, owners, scores = vectors(best), servers[best], total[best]
    likeness = np.clip((rows @ rows.T - alike) / (1.0 - alike), 0.0, 1.0)
    likeness[owners[:, None] == owners] = 0.0
    starts = np.flatnonzero(np.diff(owners, prepend=owners[0] - 1))
    said = np.maximum.reduceat(likeness * scores, starts, axis=1).sum(axis=1)
    voices = np.maximum.reduceat(likeness, starts, axis=1).sum(axis=1)
    lifts = SHARE * said / (voices + DOUBT)
    return {slot: lift for slot, lift in zip(best.tolist(), lifts.tolist(), strict=True) if lift > 0.0}
