"""Log entries that an upstream does not place: whose call they may tell of decides who is given them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from callers import Caller, http_over, on_the_real_clock
from fakes import MODERN, FakeClient, FakeUpstream, Json, proxy_over
from requirements import requirement

pytestmark = pytest.mark.anyio

MESSAGE = "notifications/message"
ENTRY: Json = {"level": "warning", "data": "of somebody's call"}


def slow(*eras: Any) -> FakeUpstream:
    upstream = FakeUpstream("calc", ["slow"], *eras, capabilities={"tools": {}, "logging": {}})
    upstream.hold("slow")
    return upstream


async def calling(upstream: FakeUpstream, *clients: FakeClient) -> None:
    """Each has a call in flight."""
    for client in clients:
        client.post("tools/call", {"name": "calc__slow"})
    await upstream.called("slow", len(clients))


@requirement("log:shared")
async def test_where_several_calls_are_in_flight_it_goes_to_those_who_asked_for_its_level() -> None:
    upstream = slow()
    async with proxy_over(upstream) as stage:
        loud, strict, silent = stage.client, stage.connect(), stage.connect()
        for client in (loud, strict, silent):
            await client.initialize()
        await loud.ask("logging/setLevel", {"level": "info"})
        await strict.ask("logging/setLevel", {"level": "error"})
        await calling(upstream, loud, silent)
        upstream.link.say(MESSAGE, ENTRY)
        assert await loud.heard(MESSAGE) == {**ENTRY, "logger": "calc"}
        upstream.link.say(MESSAGE, {**ENTRY, "level": "critical"})
        await strict.heard(MESSAGE)
        for client in (loud, strict, silent):
            await client.ask("ping")
    assert [client.count(MESSAGE) for client in (loud, strict, silent)] == [2, 1, 0]


@requirement("log:shared")
@pytest.mark.parametrize("apart", ["profile", "credential", "neither"])
async def test_it_never_crosses_profiles_or_credentials(apart: str) -> None:
    upstream = slow()
    async with proxy_over(upstream, profiles={"p": {}}) as stage:
        one = FakeClient(stage.app, principal="ann")
        profile, principal = ("p" if apart == "profile" else ""), ("bob" if apart == "credential" else "ann")
        other = FakeClient(stage.app, profile, principal=principal)
        for client in (one, other):
            await client.initialize()
            await client.ask("logging/setLevel", {"level": "debug"})
        await calling(upstream, one, other)
        upstream.link.say(MESSAGE, ENTRY)
        for client in (one, other):
            await client.ask("ping")
    assert [client.count(MESSAGE) for client in (one, other)] == ([1, 1] if apart == "neither" else [0, 0])


@requirement("log:shared")
async def test_a_bystander_of_another_credential_is_not_told_of_the_calls_of_others() -> None:
    upstream = slow()
    async with proxy_over(upstream) as stage:
        one, two, bystander = (FakeClient(stage.app, principal=name) for name in ("ann", "ann", "bob"))
        for client in (one, two, bystander):
            await client.initialize()
            await client.ask("logging/setLevel", {"level": "debug"})
        await calling(upstream, one, two)
        upstream.link.say(MESSAGE, ENTRY)
        await one.heard(MESSAGE)
        await bystander.ask("ping")
    assert [client.count(MESSAGE) for client in (one, two, bystander)] == [1, 1, 0]


@requirement("log:shared")
async def test_what_belongs_to_no_call_at_all_reaches_no_profile_without_its_upstream() -> None:
    upstream, other = slow(), FakeUpstream("other", ["x"])
    async with proxy_over(upstream, other, profiles={"p": {"servers": ["other"]}}) as stage:
        everything, less = stage.client, stage.connect("p")
        for client in (everything, less):
            await client.initialize()
            await client.list_tools()
            await client.ask("logging/setLevel", {"level": "debug"})
        upstream.link.say(MESSAGE, ENTRY)
        await everything.heard(MESSAGE)
        await less.ask("ping")
    assert less.count(MESSAGE) == 0


@requirement("log:shared")
@pytest.mark.parametrize("eras", [(), (MODERN,)])
async def test_a_modern_client_is_given_no_entry_that_may_be_of_another_call(eras: tuple[Any, ...]) -> None:
    upstream = slow(*eras)
    level = {"io.modelcontextprotocol/logLevel": "debug"}
    async with proxy_over(upstream) as stage:
        one, other = stage.client.modern("one", **level), stage.connect().modern("other", **level)
        await calling(upstream, one, other)
        upstream.link.say(MESSAGE, ENTRY)
        for client in (one, other):
            await client.ask("tools/list")
    assert (one.count(MESSAGE), other.count(MESSAGE)) == (0, 0)


@requirement("log:shared")
@on_the_real_clock
async def test_callers_that_share_a_modern_front_over_http_are_told_of_their_own_calls_alone() -> None:
    upstream = slow()
    async with http_over(upstream) as (_, http):
        callers = [Caller(http, name, log_level="debug") for name in ("one", "other")]
        alone = asyncio.create_task(callers[0].call("calc__slow"))
        first = await upstream.called("slow")
        upstream.link.say(MESSAGE, ENTRY)
        both = asyncio.create_task(callers[1].call("calc__slow"))
        second = await upstream.called("slow", 2)
        upstream.link.say(MESSAGE, {**ENTRY, "data": "of either"})
        for asked in (first, second):
            asked.reply({"content": []})
        await asyncio.gather(alone, both)
    assert [notice["params"]["data"] for notice in callers[0].notices] == [ENTRY["data"]]
    assert callers[1].notices == []


@requirement("log:level", "logging")
async def test_upstreams_are_asked_for_what_the_clients_that_have_them_still_want() -> None:
    upstream, other = slow(), FakeUpstream("other", ["x"], capabilities={"tools": {}, "logging": {}})
    async with proxy_over(upstream, other, profiles={"p": {"servers": ["other"]}}) as stage:
        strict, loud, elsewhere = stage.client, stage.connect(), stage.connect("p")
        for client, level in ((strict, "error"), (loud, "debug"), (elsewhere, "info")):
            await client.initialize()
            await client.list_tools()
            await client.ask("logging/setLevel", {"level": level})
        assert loud._front is not None
        loud._front.close()
        await upstream.asked("logging/setLevel", 3)
        await other.asked("logging/setLevel", 3)
        asked = [
            [each.params["level"] for each in one.requests if each.method == "logging/setLevel"]
            for one in (upstream, other)
        ]
    assert asked == [["error", "debug", "error"], ["error", "debug", "info"]]
