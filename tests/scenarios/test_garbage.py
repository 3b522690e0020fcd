"""What a call leaves behind: nothing that only the garbage collector finds, for long runs grow between its visits."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fakes import LEGACY, MODERN, FakeUpstream, proxy_over
from hostile_stages import MODERN_META, Asker, echo, greeted, posted
from http_callers import http_rules
from requirements import requirement

from foretool.server.transports.client.http import HttpServer
from foretool.storage.records import Era

pytestmark = pytest.mark.anyio

CALLS = 50


@contextmanager
def uncollected() -> Iterator[list[int]]:
    """The collector rests meanwhile; afterwards the list holds how many objects it found."""
    found: list[int] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        found.append(gc.collect())
    finally:
        gc.enable()


def call(era: Era, session: str, name: str = "good__echo") -> Asker:
    params = {"name": name, "arguments": {}}
    if era == "legacy":
        return posted("tools/call", params, mcp_session_id=session)
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": name}
    return posted("tools/call", params | {"_meta": MODERN_META}, **headers)


@requirement("memory:garbage")
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("tool", ["good__echo", "good__hold"])
async def test_a_call_over_http_leaves_no_garbage_whether_it_is_answered_or_dropped(era: Era, tool: str) -> None:
    async with proxy_over(echo("good")) as stage:
        edge = HttpServer(stage.app.router, http_rules())
        session = await greeted(edge)
        await call(era, session, tool).ask(edge)
        with uncollected() as found:
            for number in range(CALLS):
                asker = call(era, session, tool)
                asker.scope["headers"].append((b"x-number", b"%d" % number))
                await asker.ask(edge)
        edge.close_clients()
    assert found[0] < CALLS


@requirement("memory:garbage")
@pytest.mark.parametrize("eras", [LEGACY, MODERN])
async def test_a_call_on_stdio_leaves_no_garbage(eras: tuple[Era, ...]) -> None:
    upstream = FakeUpstream("good", ["echo"], eras=eras)
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.call_tool("good__echo")
        with uncollected() as found:
            for _ in range(CALLS):
                await stage.client.call_tool("good__echo")
    assert found[0] < CALLS
