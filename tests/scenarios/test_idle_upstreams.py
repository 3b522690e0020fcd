"""An upstream nobody calls can be put to rest, and comes back when it is called."""

from __future__ import annotations

import asyncio

import pytest
from fakes import BOTH, FakeUpstream, proxy_over, said
from msgspec.structs import replace
from requirements import requirement

from foretool.server.upstreams.upstream import State

pytestmark = pytest.mark.anyio


@requirement("start:idle")
async def test_an_idle_upstream_is_stopped_and_the_next_call_starts_it() -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH, pid=4711)
    async with proxy_over(upstream, idle_stop_s=60) as stage:
        await stage.client.initialize()
        assert said(await stage.client.call_tool("calc__add", {})) == "add"
        resting = stage.app.upstreams["calc"]
        stage.app.tick()
        assert resting.state is State.READY
        resting.used_at -= 61
        stage.app.tick()
        await asyncio.sleep(1)  # of the tests' own clock
        assert upstream.links == []
        assert (resting.state, upstream.starts) == (State.KNOWN, 1)
        assert said(await stage.client.call_tool("calc__add", {})) == "add"
    assert upstream.starts == 2


@requirement("start:idle")
async def test_an_upstream_with_a_call_in_flight_is_not_stopped() -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH, pid=4711)
    async with proxy_over(upstream, idle_stop_s=60) as stage:
        await stage.client.initialize()
        await stage.client.call_tool("calc__add", {})
        resting = stage.app.upstreams["calc"]
        upstream.scripts["add"] = lambda asked: None  # it never answers
        call = asyncio.ensure_future(stage.client.call_tool("calc__add", {}))
        await asyncio.sleep(1)
        assert resting.in_flight
        resting.used_at -= 61
        stage.app.tick()
        assert resting.state is State.READY
        call.cancel()


@requirement("start:idle")
async def test_a_server_that_holds_state_is_not_stopped_for_being_idle() -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH, pid=4711)
    async with proxy_over(upstream, idle_stop_s=60) as stage:
        await stage.client.initialize()
        assert said(await stage.client.call_tool("calc__add", {})) == "add"
        config = stage.app.live.now
        kept = replace(config.servers["calc"], entry=replace(config.servers["calc"].entry, keep_alive=True))
        stage.app.live.now = replace(config, servers={"calc": kept})
        stage.app.upstreams["calc"].used_at -= 61
        stage.app.tick()
        await asyncio.sleep(1)  # of the tests' own clock
        assert stage.app.upstreams["calc"].state is State.READY
