"""Who is told that a resource has changed, over which connection of its upstream, and when that ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from callers import Caller, http_over, on_the_real_clock
from fakes import BOTH, LEGACY, MODERN, FakeClient, FakeUpstream, Stage, config_of, proxy_over
from requirements import requirement

from foretool.server.protocol.versions import META_SUBSCRIPTION
from foretool.storage.records import Era

pytestmark = pytest.mark.anyio

URI = "a:///one"
UPDATED = "notifications/resources/updated"
SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"


def library(eras: tuple[Era, ...] = LEGACY, name: str = "a") -> FakeUpstream:
    upstream = FakeUpstream(name, ["add"], eras, capabilities={"tools": {}, "resources": {"subscribe": True}})
    listed = {"resources": [{"uri": f"{name}:///one", "name": "one"}]}
    upstream.scripts["resources/list"] = lambda asked: asked.reply(listed)
    return upstream


def listening(uris: tuple[str, ...] = (URI,)) -> dict[str, Any]:
    return {"notifications": {"resourceSubscriptions": list(uris)}}


async def subscribed(stage: Stage, *, modern: bool) -> FakeClient:
    """A client of one era that hears of changes of the resource."""
    client = stage.client.modern() if modern else stage.client
    if not modern:
        await client.initialize()
    await client.ask("resources/list")
    if modern:
        client.post("subscriptions/listen", listening(), id="L")
        await client.heard("notifications/subscriptions/acknowledged")
    else:
        await client.ask(SUBSCRIBE, {"uri": URI})
    return client


@requirement("subscriptions:ended")
async def test_a_legacy_upstream_is_unsubscribed_from_when_the_last_listener_leaves() -> None:
    upstream = library()
    async with proxy_over(upstream) as stage:
        one, other = stage.client.modern("one"), stage.connect().modern("other")
        await one.ask("resources/list")
        for client in (one, other):
            client.post("subscriptions/listen", listening(), id="L")
            await client.heard("notifications/subscriptions/acknowledged")
        await upstream.asked(SUBSCRIBE)
        one.notify("notifications/cancelled", {"requestId": "L"})
        await one.ask("tools/list")
        upstream.link.say(UPDATED, {"uri": URI})
        await other.heard(UPDATED)
        assert upstream.count(UNSUBSCRIBE) == 0
        assert other._front is not None
        other._front.close()
        assert (await upstream.asked(UNSUBSCRIBE)).params == {"uri": URI}
        await one.call_tool("a__add", {})
    assert (upstream.count(SUBSCRIBE), upstream.count(UNSUBSCRIBE), one.count(UPDATED)) == (1, 1, 0)


@requirement("subscriptions:ended")
async def test_a_modern_upstream_is_listened_to_without_what_nobody_wants_any_more() -> None:
    upstream = library(MODERN)
    async with proxy_over(upstream) as stage:
        client = stage.client.modern()
        await client.ask("resources/list")
        client.post("subscriptions/listen", listening(), id="L")
        wanting = await upstream.asked("subscriptions/listen", 2)
        client.notify("notifications/cancelled", {"requestId": "L"})
        after = await upstream.asked("subscriptions/listen", 3)
        cancelled = await upstream.asked("notifications/cancelled", 2)
    assert wanting.params["notifications"]["resourceSubscriptions"] == [URI]
    assert "resourceSubscriptions" not in after.params["notifications"]
    assert cancelled.params["requestId"] == wanting.message.id


@requirement("subscriptions:renewed")
@pytest.mark.parametrize("eras", [LEGACY, MODERN])
@pytest.mark.parametrize("modern", [False, True])
async def test_a_server_whose_entry_was_edited_is_subscribed_to_again(eras: tuple[Era, ...], modern: bool) -> None:
    upstream = library(eras)
    async with proxy_over(upstream) as stage:
        client = await subscribed(stage, modern=modern)
        upstream.entry["args"] = ["--new"]
        await stage.app.reloader.apply(config_of(upstream))
        await client.call_tool("a__add", {})
        if eras == MODERN:
            wanted = (await upstream.asked("subscriptions/listen", 3)).params["notifications"]
            assert wanted["resourceSubscriptions"] == [URI]
        else:
            assert (await upstream.asked(SUBSCRIBE, 2)).params == {"uri": URI}
        upstream.link.say(UPDATED, {"uri": URI})
        await client.heard(UPDATED)


@requirement("subscriptions:ended")
async def test_a_client_that_goes_leaves_no_subscription_behind() -> None:
    upstream = library()
    async with proxy_over(upstream) as stage:
        leaving = stage.connect()
        await leaving.initialize()
        await leaving.ask("resources/list")
        await leaving.ask(SUBSCRIBE, {"uri": URI})
        assert leaving._front is not None
        leaving._front.close()
        assert (await upstream.asked(UNSUBSCRIBE)).params == {"uri": URI}


@requirement("subscriptions:ended")
async def test_an_unsubscription_does_not_end_what_a_client_of_the_other_era_listens_to() -> None:
    upstream = library()
    async with proxy_over(upstream) as stage:
        legacy, modern = stage.client, stage.connect().modern()
        await legacy.initialize()
        for client in (legacy, modern):
            await client.ask("resources/list")
            await client.call_tool("a__add", {})
        await legacy.ask(SUBSCRIBE, {"uri": URI})
        modern.post("subscriptions/listen", listening(), id="L")
        await modern.heard("notifications/subscriptions/acknowledged")
        await legacy.ask(UNSUBSCRIBE, {"uri": URI})
        upstream.link.say(UPDATED, {"uri": URI})
        await modern.heard(UPDATED)
        assert upstream.count(UNSUBSCRIBE) == 0
        modern.notify("notifications/cancelled", {"requestId": "L"})
        await upstream.asked(UNSUBSCRIBE)
    assert legacy.count(UPDATED) == 0


@requirement("subscriptions:renewed")
@pytest.mark.parametrize("modern", [False, True])
async def test_an_upstream_that_died_is_subscribed_to_again(modern: bool) -> None:
    upstream = library()
    async with proxy_over(upstream) as stage:
        client = await subscribed(stage, modern=modern)
        await upstream.asked(SUBSCRIBE)
        upstream.die()
        await client.call_tool("a__add", {})
        assert (await upstream.asked(SUBSCRIBE, 2)).params == {"uri": URI}
        asked = [each.method for each in upstream.requests if each.method in (SUBSCRIBE, "tools/call")]
        assert asked == [SUBSCRIBE, SUBSCRIBE, "tools/call"]  # the call may be what changes it
        upstream.link.say(UPDATED, {"uri": URI})
        await client.heard(UPDATED)


@requirement("subscriptions:renewed")
async def test_an_upstream_with_subscribers_is_not_put_to_rest() -> None:
    upstream = library()
    upstream.pid = 4711
    async with proxy_over(upstream, idle_stop_s=60) as stage:
        await stage.client.initialize()
        await stage.client.ask("resources/list")
        await stage.client.ask(SUBSCRIBE, {"uri": URI})
        for wanted in (True, False):
            stage.app.upstreams["a"].used_at -= 61
            stage.app.upstreams["a"].up_at -= 61
            stage.app.tick()
            await asyncio.sleep(1)
            assert len(upstream.links) == wanted
            if wanted:
                await stage.client.ask(UNSUBSCRIBE, {"uri": URI})


@requirement("subscriptions:legacy")
async def test_a_legacy_client_hears_of_a_resource_of_a_modern_upstream() -> None:
    upstream = library(MODERN)
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize()
        await client.ask("resources/list")
        assert await client.ask(SUBSCRIBE, {"uri": URI}) == {}
        listen = await upstream.asked("subscriptions/listen", 2)
        upstream.link.say(UPDATED, {"uri": URI, "_meta": {META_SUBSCRIPTION: 7, "kept": 1}})
        heard = await client.heard(UPDATED)
        assert await client.ask(UNSUBSCRIBE, {"uri": URI}) == {}
        after = await upstream.asked("subscriptions/listen", 3)
    assert heard == {"uri": URI, "_meta": {"kept": 1}}
    assert listen.params["notifications"]["resourceSubscriptions"] == [URI]
    assert "resourceSubscriptions" not in after.params["notifications"]


@requirement("subscriptions:modern", "subscriptions:legacy")
async def test_of_an_upstream_of_both_eras_each_client_hears_once() -> None:
    upstream = library(BOTH)
    async with proxy_over(upstream) as stage:
        legacy, modern = stage.client, stage.connect().modern()
        await legacy.initialize()
        for client in (legacy, modern):
            await client.ask("resources/list")
            await client.call_tool("a__add", {})
        await legacy.ask(SUBSCRIBE, {"uri": URI})
        modern.post("subscriptions/listen", listening())
        await upstream.asked("subscriptions/listen", 2)
        assert {link.era for link in upstream.links} == {"legacy", "modern"}
        for link in upstream.links:
            link.say(UPDATED, {"uri": URI})
        for client in (legacy, modern):
            await client.heard(UPDATED)
            await client.call_tool("a__add", {})
    assert (legacy.count(UPDATED), modern.count(UPDATED)) == (1, 1)


@requirement("subscriptions:profile")
async def test_nothing_is_heard_of_the_resources_of_servers_that_a_profile_leaves_out() -> None:
    a, b = library(), library(name="b")
    async with proxy_over(a, b, profile="p", profiles={"p": {"servers": ["a"]}}) as stage:
        everything = stage.connect()
        await everything.initialize()
        await everything.ask("resources/list")
        await everything.ask(SUBSCRIBE, {"uri": "b:///one"})
        client = stage.client.modern()
        client.post("subscriptions/listen", listening(("b:///one",)))
        await client.heard("notifications/subscriptions/acknowledged")
        b.link.say(UPDATED, {"uri": "b:///one"})
        b.link.say("notifications/prompts/list_changed")
        await everything.heard(UPDATED)
        await client.ask("tools/list")
    assert client.count(UPDATED) == 0
    assert b.count(SUBSCRIBE) == 1


@requirement("subscriptions:ended", "subscriptions:modern")
@on_the_real_clock
async def test_over_http_a_listener_hears_until_it_goes_and_then_its_upstream_is_unsubscribed_from() -> None:
    upstream = library()
    async with http_over(upstream) as (_, http):
        one, other = Caller(http, "one"), Caller(http, "other")
        await one.ask("resources/list")
        for caller in (one, other):
            await caller.listen(URI)
        await upstream.asked(SUBSCRIBE)
        await one.leave()
        await one.ask("resources/list")
        upstream.link.say(UPDATED, {"uri": URI})
        assert (await other.told(UPDATED))["params"]["uri"] == URI
        await other.leave()
        await upstream.asked(UNSUBSCRIBE)
    assert (upstream.count(SUBSCRIBE), upstream.count(UNSUBSCRIBE)) == (1, 1)


@requirement("subscriptions:modern")
@pytest.mark.parametrize("in_use", [False, True])
async def test_what_a_modern_client_listens_to_before_its_upstream_turns_out_to_be_legacy_is_subscribed_to_once(
    in_use: bool,
) -> None:
    upstream = library()
    async with proxy_over(upstream) as stage:
        if in_use:  # its legacy connection stands, and nobody has tried the other era
            await stage.client.initialize()
            await stage.client.ask("resources/list")
        modern = stage.connect().modern()
        modern.post("subscriptions/listen", listening())
        await upstream.asked(SUBSCRIBE)
        await asyncio.sleep(1)
        assert len(upstream.links) == 1
        upstream.link.say(UPDATED, {"uri": URI})
        await modern.heard(UPDATED)
        await modern.call_tool("a__add", {})
    assert upstream.count(SUBSCRIBE) == 1
    assert modern.count(UPDATED) == 1


@requirement("subscriptions:ended")
@pytest.mark.parametrize("ending", ["reply", "error", "cancelled"])
async def test_who_unsubscribes_does_not_end_what_another_client_is_subscribing_to(ending: str) -> None:
    upstream = library()
    async with proxy_over(upstream) as stage:
        one, other = stage.client, stage.connect()
        for client in (one, other):
            await client.initialize()
            await client.ask("resources/list")
        await one.ask(SUBSCRIBE, {"uri": URI})
        upstream.hold(SUBSCRIBE)
        wanted = other.post(SUBSCRIBE, {"uri": URI})
        asked = await upstream.asked(SUBSCRIBE, 2)
        await one.ask(UNSUBSCRIBE, {"uri": URI})
        assert upstream.count(UNSUBSCRIBE) == 0
        if ending == "reply":
            asked.reply({})
            await other.result(wanted)
            upstream.link.say(UPDATED, {"uri": URI})
            await other.heard(UPDATED)
        elif ending == "error":
            asked.fail(-32603, "full")
            await other.reply(wanted)
        else:
            other.notify("notifications/cancelled", {"requestId": wanted})
        if ending != "reply":  # now nobody wants it
            await upstream.asked(UNSUBSCRIBE)
            upstream.link.say(UPDATED, {"uri": URI})
            await other.ask("ping")
    assert one.count(UPDATED) == 0 and other.count(UPDATED) == (1 if ending == "reply" else 0)
