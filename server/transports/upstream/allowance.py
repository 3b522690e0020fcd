"""How much of the event loop one upstream may take for what nobody asked it.

Replies to our requests are free, because clients decide how many there are. Everything else that an upstream writes
(notifications, questions, junk, replies to nothing) takes time that belongs to the other upstreams. It may take a tenth
of the loop, and more for a moment. Then it is not read for a while; it notices because its pipe or its stream is full.
Nothing is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

SHARE: Final = 0.1
"""The part of the loop's time that one upstream may take for what nobody asked."""
BURST_S: Final = 0.1
"""Seconds of the loop's time that it may take at once."""
LEAST_PAUSE_S: Final = 0.005
MOST_PAUSE_S: Final = 2.0
MOST_ASKED: Final = 100_000
"""Replies that can be outstanding; more are not counted as free."""


class Allowance:
    """Counts the time that an upstream takes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = BURST_S
        self._at = clock()
        self._asked = 0

    def note_request(self) -> None:
        """Take in that a request was sent: one message will be free."""
        self._asked = min(self._asked + 1, MOST_ASKED)

    def spend(self, seconds: float, messages: int, replies: int) -> float:
        """Take in that `messages` were handled in so many seconds, `replies` of them replies; 0 messages means junk.
        Return how long the upstream is not to be read, 0.0 if it may go on."""
        free = min(replies, self._asked)
        self._asked -= free
        if free == messages > 0:
            return 0.0
        now = self._clock()
        self._left = min(self._left + (now - self._at) * SHARE, BURST_S)
        self._at = now
        self._left -= seconds * (messages - free) / messages if messages else seconds
        if self._left >= 0:
            return 0.0
        self._left = max(self._left, -MOST_PAUSE_S * SHARE)
        return max(-self._left / SHARE, LEAST_PAUSE_S)
