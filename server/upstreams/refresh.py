"""Lists the tools of servers again that were listed too long ago, once for all proxies of a store.

One proxy has the lead (`Store.lead`) and starts these servers, a few at a time. A server that was started only for
that ends again as soon as it has listed its tools. The other proxies read from the store what it has listed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from math import inf
from typing import Final

from foretool.server.config.loader import LiveConfig
from foretool.server.upstreams.memory import UpstreamMemory
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import State, Upstream
from foretool.storage.engine import StorageError
from foretool.storage.records import Era
from foretool.storage.store import Store

REFRESH: Final = "refresh"
"""The work whose lead one proxy of a store has."""
_AFTER_S: Final = 2.0
"""Upstreams are refreshed this long after the start: not while the first client waits for its first answers."""
AT_ONCE: Final = 4
"""Servers that are started at a time."""
_LOOK_S: Final = 10.0
"""Pause between two looks into the store while another proxy refreshes."""


class Refresher:
    """Starts servers whose lists are stale and ends them again; housekeeping calls `tick` about once a second."""

    def __init__(
        self,
        upstreams: UpstreamRegistry,
        memory: UpstreamMemory,
        config: LiveConfig,
        store: Store,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called after tools were taken from the store that another proxy has listed."""
        self._upstreams = upstreams
        self._memory = memory
        self._config = config
        self._store = store
        self._changed = changed
        self._lead = store.lead(REFRESH)
        self._begun = inf
        """When the first tick came, by the clock of the loop."""
        self._look_at = 0.0
        self._started: dict[str, float] = {}
        """When each server was started for its list alone, in monotonic seconds."""

    def tick(self, era: Era | None) -> None:
        """Do what is due. `era`: that of a client, None while no client is there."""
        now = asyncio.get_running_loop().time()
        self._begun = min(self._begun, now)
        self._end_listed()
        if era is None or now - self._begun < _AFTER_S:
            return
        known = [each for each in self._upstreams if each.state is State.KNOWN and not each.is_personal]
        stale = [each for each in known if self._memory.is_stale(each.name)]
        if not stale:
            if not self._started:
                self._lead.release()
            return
        # Another proxy lists them now, or has done so before we took the lead.
        self._follow(now)
        if not self._may_lead():
            return
        for upstream in stale:
            if len(self._started) >= AT_ONCE:
                return
            if self._memory.is_stale(upstream.name) and upstream.name not in self._started:
                self._started[upstream.name] = time.monotonic()
                upstream.start(era)

    def stop(self) -> None:
        """Let another proxy refresh: this one ends."""
        self._lead.release()

    def _may_lead(self) -> bool:
        try:
            return self._lead.take()
        except StorageError:
            return True  # where none can be had, each proxy looks after itself

    def _follow(self, now: float) -> None:
        """Take from the store, now and then, what another proxy has listed since."""
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            with contextlib.suppress(StorageError):
                if self._memory.take_up_listed():
                    self._changed()

    def _end_listed(self) -> None:
        """End the servers that have listed their tools, and forget those that somebody uses by now or that failed."""
        for name, started_at in list(self._started.items()):
            upstream = self._upstreams.get(name)
            if upstream is not None and upstream.state in (State.KNOWN, State.STARTING):
                continue
            if upstream is not None and upstream.state is State.READY:
                if self._memory.is_stale(name):
                    continue  # its list has yet to come
                if not self._is_used(upstream, started_at):
                    upstream.rest()
            del self._started[name]

    def _is_used(self, upstream: Upstream, since: float) -> bool:
        server = self._config.now.servers.get(upstream.name)
        return upstream.used_at >= since or (server is not None and server.entry.keep_alive)
