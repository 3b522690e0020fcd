"""One era's way to an upstream: the current connection, the requests that wait for one, and a refused handshake."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.versions import other_era
from foretool.server.upstreams.connection import Connection, Lost, Request
from foretool.storage.records import Era

_REPLACED: Final = frozenset({jsonrpc.METHOD_NOT_FOUND, jsonrpc.UNSUPPORTED_VERSION})
"""Error codes of a refused handshake that mean: a version that speaks only the other era has replaced the upstream."""


def note_refusal(speaks: dict[Era, bool], era: Era, code: int) -> bool:
    """Note that a handshake of this era was refused with this error code. Returns whether the upstream may speak the
    other era; False means that it is simply broken."""
    other = other_era(era)
    if speaks.get(era) and code not in _REPLACED:
        return False
    if speaks.get(other) is False:
        # As far as we know it speaks neither era: either that is out of date, or the upstream is broken.
        del speaks[other]
        if not speaks.get(era):
            return False
    speaks[era] = False
    return True


class Line:
    """Holds the connection of one era and the requests that wait for it; it stays across restarts of the upstream."""

    def __init__(self, era: Era) -> None:
        self.era: Era = era
        self.connection: Connection | None = None
        self.wanted = asyncio.Event()
        """Set when somebody needs a connection."""
        self.lost = asyncio.Event()
        """Set when the current connection is lost or no longer needed."""
        self.failures = 0
        """Starts in a row that failed, on this line or on the one that it took over from."""
        self._waiting: deque[Request] = deque()

    @property
    def ready(self) -> Connection | None:
        """The connection if its handshake is done, else None."""
        return self.connection if self.connection is not None and self.connection.ready else None

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def put(self, request: Request) -> None:
        """Keep a request until there is a connection, and wake the upstream's keeper of the line."""
        if request.timeout and not request.deadline:
            request.deadline = time.monotonic() + request.timeout
        self._waiting.append(request)
        self.wanted.set()

    def take_over(self, other: Line) -> None:
        """Let the requests that wait for the other line wait for this one."""
        self._waiting.extend(other._waiting)
        other._waiting.clear()

    def send_waiting(self, connection: Connection) -> None:
        while self._waiting:
            connection.send(self._waiting.popleft())

    def fail_waiting(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.reply(Lost(reason, sent=False))

    def cancel(self, request: Request, reason: str) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
        elif self.connection is not None:
            self.connection.cancel(request, reason)

    def expire(self, now: float) -> None:
        """Answer each request whose deadline has passed with `Lost`. `now`: monotonic seconds."""
        late = self.connection.expire(now) if self.connection is not None else []
        unsent = [request for request in self._waiting if request.deadline and request.deadline < now]
        for request in unsent:
            self._waiting.remove(request)
        for request in late + unsent:
            request.reply(Lost(request.lateness, request.sent))
