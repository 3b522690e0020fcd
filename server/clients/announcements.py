"""Tells clients that their list of tools has changed, once for many changes."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from foretool.server.clients.registry import ClientRegistry

ANNOUNCE_S: Final = 0.25
"""Changes of several upstreams within this time are announced once."""

ANNOUNCE_SHARE: Final = 10.0
"""The pause between two looks at the clients' lists, as a multiple of what the last look took."""
ANNOUNCE_MOST_S: Final = 3.0
"""The longest such pause."""


class Announcements:
    """Gathers changes of lists and announces them to the clients that they concern."""

    def __init__(self, clients: ClientRegistry) -> None:
        self._clients = clients
        self._timer: asyncio.TimerHandle | None = None
        self._took_s = 0.0
        """What the last look at the clients' lists took."""
        self._announced: set[str] = set()
        """Upstreams that have announced a change of their tools since clients were last told."""

    def relay(self, upstream: str) -> None:
        """Announce a change that an upstream has announced itself."""
        self._announced.add(upstream)

    @property
    def are_due(self) -> bool:
        """Whether an upstream's own announcement waits to be relayed."""
        return bool(self._announced)

    def soon(self) -> None:
        """Announce changes shortly."""
        if self._timer is None:
            # While hundreds of upstreams come one by one, lists must not be made more often than they are given.
            pause = max(ANNOUNCE_S, min(ANNOUNCE_SHARE * self._took_s, ANNOUNCE_MOST_S))
            self._timer = asyncio.get_running_loop().call_later(pause, self.announce)

    def announce(self) -> None:
        """Tell the clients whose list is not the one they were given. Clients that see everything are also told
        whenever an upstream has announced a change, as a plain aggregate would."""
        self._timer = None
        started = time.perf_counter()
        announced, self._announced = self._announced, set()
        for client in self._clients:
            if client.transport == "library":
                continue  # a program takes its tools step by step
            relayed = any(client.profile.admits(name) for name in announced)
            if client.tools.is_stale() or (relayed and client.tools.sees_all()):
                client.tools.announce()
        self._took_s = time.perf_counter() - started
