"""One upstream that runs, what it reports, and a call of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fakes import PATIENCE_S, FakeUpstream

from foretool.server.protocol.jsonrpc import Message, Raw, raw
from foretool.server.protocol.lists import ListKind
from foretool.server.upstreams.connection import Reply, Request
from foretool.server.upstreams.upstream import State, Upstream
from foretool.storage.records import Era


class Host:
    """Who the upstream reports to."""

    def __init__(self) -> None:
        self.tools: list[int] = []
        self.states: list[State] = []

    async def on_listed(self, upstream: Upstream, kind: ListKind, tools: Sequence[Raw]) -> None:
        self.tools.append(len(tools))

    def on_unlisted(self, upstream: Upstream, kind: ListKind, reason: str) -> None: ...

    def on_state(self, upstream: Upstream) -> None:
        self.states.append(upstream.state)

    def on_notification(self, upstream: Upstream, message: Message, era: Era) -> None: ...

    def on_request(
        self, upstream: Upstream, message: Message, request: Request | None, answer: Callable[[Message], None]
    ) -> None: ...


@asynccontextmanager
async def running(fake: FakeUpstream, **options: Any) -> AsyncIterator[tuple[Upstream, Host]]:
    host = Host()
    upstream = Upstream(fake.name, host, fake.opened, **options)
    task = asyncio.ensure_future(upstream.run())
    await asyncio.sleep(0)
    try:
        yield upstream, host
    finally:
        await upstream.stop()
        await task


async def called(upstream: Upstream, era: Era = "legacy", patience: float = PATIENCE_S) -> Reply:
    done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    upstream.request(era, Request("tools/call", {"name": raw("add")}, done.set_result))
    async with asyncio.timeout(patience):
        return await done
