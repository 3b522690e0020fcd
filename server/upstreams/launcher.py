"""Makes the upstreams of the config, runs them, and ends those that a reload removes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from foretool.server.config.servers import Server
from foretool.server.upstreams.memory import UpstreamMemory
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era


class Launcher:
    """Owns the task of each upstream."""

    def __init__(
        self, upstreams: UpstreamRegistry, memory: UpstreamMemory, make_upstream: Callable[[Server], Upstream]
    ) -> None:
        self._upstreams = upstreams
        self._memory = memory
        self._make_upstream = make_upstream
        self._tasks: asyncio.TaskGroup | None = None

    def load(self, servers: Sequence[Server]) -> None:
        """Make the upstreams of these servers, with what the store remembers of them."""
        known = self._memory.load(servers)
        for server in servers:
            upstream = self._make_upstream(server)
            if (record := known.get(server.name)) is not None:
                speaks: dict[Era, bool] = {}
                if record.era:
                    speaks[record.era] = True
                if record.lacks:
                    speaks[record.lacks] = False
                upstream.speaks = speaks
            self._upstreams.add(upstream)

    def run(self, tasks: asyncio.TaskGroup) -> None:
        """Run every upstream in a task group, and report the state of those that are not started."""
        self._tasks = tasks
        for upstream in self._upstreams:
            tasks.create_task(upstream.run())
            self._memory.save_state(upstream)

    def add(self, servers: Sequence[Server], era: Era | None) -> None:
        """Make and run the upstreams of added servers; start them in `era` if a client is there."""
        self.load(servers)
        for server in servers:
            upstream = self._upstreams[server.name]
            if self._tasks is not None:
                self._tasks.create_task(upstream.run())
            if era is not None:
                upstream.start(era)

    async def remove(self, names: Iterable[str]) -> None:
        """End upstreams that are removed or started again with other settings."""
        for name in names:
            if (upstream := self._upstreams.remove(name)) is not None:
                await upstream.stop()
                self._memory.forget_upstream(name)

    async def stop(self) -> None:
        """End every upstream."""
        await asyncio.gather(*(upstream.stop() for upstream in self._upstreams))
