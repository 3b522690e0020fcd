"""An upstream nobody calls can be put to rest, and comes back when it is called."""

from __future__ import annotations

import asyncio

import pytest
from fakes import BOTH, FakeClient, FakeUpstream, proxy_over, said
from msgspec.structs import replace
from requirements import requirement

from foretool.server.upstreams.upstream import State, Upstream

pytestmark = pytest.mark.anyio


def pass_time(resting: Upstream, seconds: float) -> None:
    """Make an upstream look as if it had been left alone for so long."""
    resting.used_at -= seconds
    resting.up_at -= seconds


def leave(client: FakeClient) -> None:
    """Go, as a client does whose window closes."""
    assert client._front is not None
    client._front.close()


@requirement("start:idle")
async def test_an_idle_upstream_is_stopped_and_the_next_call_starts_it() -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH, pid=4711)
    async with proxy_over(upstream, idle_stop_s=60) as stage:
        await stage.client.initialize()
        assert said(await stage.client.call_tool("calc__add", {})) == "add"
        resting = stage.app.upstreams["calc"]
        stage.app.tick()
        assert resting.state is State.READY
        pass_time(resting, 61)
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
        pass_time(resting, 61)
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
        pass_time(stage.app.upstreams["calc"], 61)
        stage.app.tick()
        await asyncio.sleep(1)  # of the tests' own clock
        assert stage.app.upstreams["calc"].state is State.READY


@requirement("start:unused")
async def test_a_server_is_stopped_when_every_client_that_called_it_has_gone_and_not_before() -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH, pid=4711)
    async with proxy_over(upstream) as stage:
        stays, leaves = stage.connect(), stage.connect()
        for client in (stage.client, stays, leaves):
            await client.initialize()
        assert said(await stays.call_tool("calc__add", {})) == "add"
        assert said(await leaves.call_tool("calc__add", {})) == "add"
        resting = stage.app.upstreams["calc"]
        leave(leaves)
        pass_time(resting, 100_000)
        stage.app.tick()
        assert resting.state is State.READY, "a client that called it is there"
        leave(stays)
        stage.app.tick()
        await asyncio.sleep(1)  # of the tests' own clock
        assert (resting.state, upstream.links) == (State.KNOWN, [])
        assert said(await stage.client.call_tool("calc__add", {})) == "add"
    assert upstream.starts == 2


@requirement("start:unused")
async def test_a_server_that_was_started_for_its_list_and_never_called_is_stopped_after_a_while() -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH, pid=4711)
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        resting = stage.app.upstreams["calc"]
        stage.app.tick()
        assert resting.state is State.READY, "it has just listed its tools, and the first call may come"
        pass_time(resting, 601)
        stage.app.tick()
        assert resting.state is State.KNOWN


@requirement("start:unused")
@pytest.mark.parametrize(("idle_s", "state"), [(601, State.READY), (1801, State.KNOWN)])
async def test_a_caller_without_a_session_counts_as_gone_when_its_session_would_be(idle_s: float, state: State) -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH, pid=4711)
    async with proxy_over(upstream) as stage:
        client = stage.connect(transport="http").modern()
        client._front = stage.app.router.open("modern", "http", client, "", "")
        assert said(await client.call_tool("calc__add", {})) == "add"
        resting = stage.app.upstreams["calc"]
        pass_time(resting, idle_s)
        stage.app.tick()
        assert resting.state is state


@requirement("start:unused")
@pytest.mark.parametrize("settings", [{"unused_stop_s": 0}, {"unused_stop_s": 700}])
async def test_the_time_is_a_setting_and_zero_stops_nothing(settings: dict[str, float]) -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH, pid=4711)
    async with proxy_over(upstream, **settings) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        resting = stage.app.upstreams["calc"]
        pass_time(resting, 650)
        stage.app.tick()
        assert resting.state is State.READY
