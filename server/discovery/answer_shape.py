"""How much an answer of `discover_tools` shows at each level of confidence.

As many tools are shown as hold a needed one with the promised probability (`retrieval/confidence.py`): up to three
with their schemas, ready to call, some more in one line each, and the rest by their names alone. In doubt no schema is
shown but a map of the servers, so that the next question can be a better one.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from foretool.retrieval.confidence import LEAST_SHOWN
from foretool.storage.records import Level

READY: Final = 3
"""At most so many tools of one need are shown with their schemas."""
_MORE_READY: Final = 2
"""So many more for each further need."""
_LINED: Final = 6
"""At most so many tools of one need are described; a line costs three times as much as a name."""
_MORE_LINED: Final = 4
"""So many more for each further need."""
LEAST: Final = 5
"""At least so many tools are shown, unless the task names those that it wants."""
_MORE_SHOWN: Final = 2
"""So many more tools are shown for each further clause of a paragraph: the gate speaks of one needed tool."""
SHARE: Final = 4
"""Skills and instructions get at most 1 / `SHARE` of an answer's tokens together."""


class Shape(Struct, frozen=True):
    """How an answer shows its matches."""

    ready: int
    """So many of the best are shown with what they do and their schemas."""
    lined: int
    """So many after them are shown in one line each: what a call needs, and what the tool does."""
    named: int
    """So many after those are shown by their names alone."""
    has_map: bool
    """Whether the servers are listed, each in one line."""

    @property
    def shown(self) -> int:
        return self.ready + self.lined + self.named


def enough(k: int, clauses: int) -> int:
    """Return how many tools to show where `k` suffice for one need and the task is a paragraph of so many clauses."""
    if clauses <= k < LEAST_SHOWN:
        return k  # the task names its tools, or no more are there; a name among many clauses is not all that they need
    return max(k, LEAST) + _MORE_SHOWN * max(clauses - 1, 0)


def shape(level: Level, matches: int, k: int, *, needs: int = 1, limit: int | None = None,
          widens: bool = False) -> Shape:  # fmt: skip
    """Return how `matches` matches are shown.

    `k`: how many tools suffice for the task. `needs`: its lines. `limit`: what the caller asked for. `widens`: the
    caller says that what it saw did not suffice. Whoever says either wants to see what there is, so nothing is held
    back from them at any level.
    """
    insists = limit is not None or widens
    if not matches or (level == "none" and not insists):
        return Shape(0, 0, 0, has_map=True)
    most = limit if limit is not None else matches if widens else k
    shown = min(most, matches)
    ready = READY + _MORE_READY * (needs - 1) if level in ("high", "medium") else 0
    ready = min(ready, shown)
    lined = shown if insists else min(_LINED + _MORE_LINED * (needs - 1), shown)
    return Shape(ready, lined - ready, shown - lined, has_map=level in ("low", "none"))
