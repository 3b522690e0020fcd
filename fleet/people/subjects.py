"""The access tokens of those who call, where they are traded for tokens of servers (RFC 8693)."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final

MOST_KEPT: Final = 4096
"""People whose tokens are kept."""


class Subjects:
    """The latest access token of each person who has called, in memory alone: it is what is traded.

    `wanted` is set where a server needs it; otherwise nothing is kept.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._latest: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def note(self, person: str, token: str, expires_at: float) -> None:
        """Take in a token that was believed."""
        if self.wanted:
            self._latest.pop(person, None)
            self._latest[person] = (token, expires_at)
            while len(self._latest) > MOST_KEPT:
                self._latest.popitem(last=False)

    def find(self, person: str) -> str:
        """Return the latest token of a person, "" if there is none that is valid."""
        token, expires_at = self._latest.get(person, ("", 0.0))
        return token if time.time() < expires_at else ""

    def __repr__(self) -> str:
        return f"Subjects({len(self._latest)})"
