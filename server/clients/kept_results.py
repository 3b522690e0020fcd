"""Keeps what was cut off long results until the session ends, in bounded memory.

A server that sends huge results pushes out its own rests first, then those of its session, never those of a session
that holds less.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from msgspec import Struct

from foretool.storage.records import ToolId

MOST_SESSION: Final = 32 * 1024 * 1024
"""Bytes that the rests of one session may hold together. A larger rest is not kept."""
MOST_TOTAL: Final = 64 * 1024 * 1024
"""Bytes that all rests may hold together."""
OVERHEAD: Final = 4096
"""Bytes that each rest counts besides its text, so that many tiny ones are bounded too."""


class Rest(Struct, frozen=True):
    """The rest of a result that was cut off for being too long."""

    tool: ToolId
    upstream: str
    text: str
    part_tokens: int
    """Tokens of one part, as the tool's results are cut."""

    @property
    def size(self) -> int:
        """The bytes that count for it."""
        return sys.getsizeof(self.text) + OVERHEAD


class KeptResults:
    """Keeps the cut-off rests of long results, by session and upstream."""

    def __init__(self) -> None:
        self._rests: dict[str, dict[str, dict[str, Rest]]] = {}
        """Session, then upstream, then id; the oldest rest first. No inner dictionary is empty."""
        self._sizes: dict[str, dict[str, int]] = {}
        """Session, then upstream: bytes of its rests."""

    @property
    def size(self) -> int:
        """Bytes of all rests."""
        return sum(sum(each.values()) for each in self._sizes.values())

    def keep(self, session: str, rest: Rest) -> str | None:
        """Keep a rest for a session. Return its id, or None if it has no room."""
        if rest.size > MOST_SESSION:
            return None
        ident = os.urandom(8).hex()
        self._rests.setdefault(session, {}).setdefault(rest.upstream, {})[ident] = rest
        sizes = self._sizes.setdefault(session, {})
        sizes[rest.upstream] = sizes.get(rest.upstream, 0) + rest.size
        while session in self._sizes and sum(self._sizes[session].values()) > MOST_SESSION:
            self._drop_oldest(session)
        while self.size > MOST_TOTAL:
            self._drop_oldest(max(self._sizes, key=lambda each: sum(self._sizes[each].values())))
        return ident if self.get(session, ident) is not None else None

    def get(self, session: str, ident: str) -> Rest | None:
        for rests in self._rests.get(session, {}).values():
            if ident in rests:
                return rests[ident]
        return None

    def forget(self, session: str) -> None:
        self._rests.pop(session, None)
        self._sizes.pop(session, None)

    def _drop_oldest(self, session: str) -> None:
        """Drop the oldest rest of the upstream that holds most in a session."""
        sizes, upstreams = self._sizes[session], self._rests[session]
        largest = max(sizes, key=sizes.__getitem__)
        rests = upstreams[largest]
        sizes[largest] -= rests.pop(next(iter(rests))).size
        if not rests:
            del upstreams[largest], sizes[largest]
        if not upstreams:
            self.forget(session)
