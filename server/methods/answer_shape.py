"""How much an answer of `discover_tools` shows at each level of confidence.

As many tools are shown as hold a needed one with the promised probability (`retrieval/confidence.py`). So sure answers
are short: up to three tools that are ready to call. Doubtful ones cost little: names, what a call needs, and a map of
the servers, so that the next question can be a better one. Where nothing fits, no tool is shown.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from foretool.storage.records import Level

READY: Final = 3
"""At most so many tools of one need are shown with their schemas."""
MORE_READY: Final = 2
"""So many more for each further need."""


class Shape(Struct, frozen=True):
    """How an answer shows its matches."""

    ready: int
    """So many of the best are shown with what they do and their schemas."""
    named: int
    """So many after them are shown in one line."""
    has_map: bool
    """Whether the servers are listed, each in one line."""

    @property
    def shown(self) -> int:
        return self.ready + self.named


def shape(level: Level, matches: int, k: int, *, needs: int = 1, limit: int | None = None,
          widens: bool = False) -> Shape:  # fmt: skip
    """Return how `matches` matches are shown.

    `k`: how many tools suffice. `needs`: lines of the task. `limit`: what
    the caller asked for. `widens`: the caller says that what it saw did not suffice. Whoever says either wants to see
    what there is, so nothing is held back from them at any level.
    """
    insists = limit is not None or widens
    if not matches or (level == "none" and not insists):
        return Shape(0, 0, has_map=True)
    most = limit if limit is not None else matches if widens else k
    shown = min(most, matches)
    ready = READY + MORE_READY * (needs - 1) if level in ("high", "medium") else 0
    ready = min(ready, shown)
    return Shape(ready, shown - ready, has_map=level in ("low", "none"))
