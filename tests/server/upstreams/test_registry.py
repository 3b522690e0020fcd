"""Which upstreams there are. Whole conversations: tests/scenarios/test_cold_start.py."""

from __future__ import annotations

import asyncio

import pytest
from fakes import BOTH, FakeUpstream, proxy_over
from requirements import requirement

from foretool.server.upstreams.registry import PATIENCE_S, Absent

pytestmark = pytest.mark.anyio


@requirement("start:absent")
async def test_servers_of_the_profile_that_are_starting_or_down_are_named() -> None:
    slow, bad = FakeUpstream("slow", ["b"], gate=asyncio.Event()), FakeUpstream("bad", missing="not installed")
    other = FakeUpstream("other", ["c"], gate=asyncio.Event())
    profiles = {"p": {"servers": ["calc", "slow", "bad"]}}
    async with proxy_over(
        FakeUpstream("calc", ["add"]), slow, bad, other, profile="p", profiles=profiles, cold_list_s=0.1
    ) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        profile = stage.app.config.profiles["p"]
        assert stage.app.upstreams.absent(profile) == Absent(starting=("slow",), down=("bad",))
        assert slow.gate is not None
        slow.gate.set()
        await stage.client.until(lambda: stage.app.upstreams.absent(profile) == Absent(down=("bad",)))


@requirement("start:search-waits")
async def test_a_search_does_not_wait_for_a_server_that_has_been_starting_for_long() -> None:
    stuck = FakeUpstream("stuck", ["b"], BOTH, gate=asyncio.Event())
    async with proxy_over(FakeUpstream("calc", ["add"], BOTH), stuck, cold_list_s=0.1, cold_search_s=2) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await stage.client.discover("add")
        assert loop.time() - began >= 1.9
        stage.app.upstreams["stuck"].since -= PATIENCE_S
        began = loop.time()
        await stage.client.discover("add")
        assert loop.time() - began < 0.5
