"""Starts every upstream of the config once, asks it for its tools, and ends it, for `foretool doctor`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from foretool.server.config.servers import Server
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Message, Raw
from foretool.server.transports.upstream.stdio import ChildWatcher
from foretool.server.upstreams.connection import Request, answer_error
from foretool.server.upstreams.launcher import link_opener
from foretool.server.upstreams.upstream import State, Upstream
from foretool.storage.records import Era

STOP_S: Final = 15.0
"""How long a child that ignores closed input and SIGTERM may take to end, with time to spare."""

OnProbed = Callable[[str], None]
"""Receives the name of each upstream as soon as its probe has ended."""


@dataclass(eq=False)
class Probe:
    """One start of an upstream; it is the host that the upstream reports to."""

    server: Server
    limit: int
    watcher: ChildWatcher
    upstream: Upstream = field(init=False)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once its tools are known or it has failed."""
    definitions: Sequence[Raw] | None = None
    """Its tools; None while they are not known."""
    error: str = ""
    started: float = 0.0
    ready_s: float = 0.0
    listed_s: float = 0.0

    def __post_init__(self) -> None:
        server = self.server
        opener = link_opener(server, self.limit, self.watcher)
        self.upstream = Upstream(server.name, self, opener, server.entry.timeout_s, server.secrets.redact)

    async def run(self, timeout_s: float) -> None:
        """Start the upstream, wait for its tools, and end it."""
        self.started = time.perf_counter()
        running = asyncio.create_task(self.upstream.run())
        self.upstream.start("legacy")
        try:
            async with asyncio.timeout(timeout_s):
                await self.settled.wait()
        except TimeoutError:
            asked = "tools/list" if self.ready_s else "initialize"
            self.error = f"no answer to {asked} within {timeout_s:g} s"
        finally:
            self.settled.set()  # what it says while it is being ended is not a finding
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self.upstream.stop()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def on_tools(self, upstream: Upstream, tools: Sequence[Raw]) -> None:
        if not self.settled.is_set():
            self.definitions, self.listed_s = tools, time.perf_counter() - self.started
            self.settled.set()

    def on_state(self, upstream: Upstream) -> None:
        if self.settled.is_set():
            return
        if upstream.state is State.READY and not self.ready_s:
            self.ready_s = time.perf_counter() - self.started
        if upstream.error:
            self.error = upstream.error
            self.settled.set()

    def on_notification(self, upstream: Upstream, message: Message, era: Era) -> None:
        pass

    def on_request(
        self, upstream: Upstream, message: Message, request: Request | None, answer: Callable[[Message], None]
    ) -> None:
        ident = message.id if isinstance(message.id, int | str) else None
        answer(answer_error(ident, jsonrpc.METHOD_NOT_FOUND, "foretool doctor answers no requests"))


async def probe_all(servers: Sequence[Server], limit: int, timeout_s: float, on_probed: OnProbed) -> list[Probe]:
    """Start all servers at once, each for at most `timeout_s`. All have ended when this returns.

    `limit`: bytes of one message.
    """
    watcher = ChildWatcher()
    probes = [Probe(server, limit, watcher) for server in servers]

    async def run_one(probe: Probe) -> None:
        await probe.run(timeout_s)
        on_probed(probe.server.name)

    try:
        async with asyncio.TaskGroup() as tasks:
            for probe in probes:
                tasks.create_task(run_one(probe))
    finally:
        watcher.close()
    return probes
