"""The list is there at once: from the store without starting anything, else within the deadline."""

from __future__ import annotations

import asyncio

import pytest
from callers import Caller, http_over, on_the_real_clock
from fakes import BOTH, LIST_CHANGED, Failed, FakeUpstream, failing_store, proxy_over, said, tool
from requirements import requirement

from foretool.server.upstreams.upstream import State

pytestmark = pytest.mark.anyio


@requirement("start:lazy")
async def test_a_known_catalogue_is_listed_and_searched_without_starting_any_upstream() -> None:
    store, _ = failing_store()
    upstream = FakeUpstream("calc", ["add", "subtract"], BOTH)
    async with proxy_over(upstream, store=store, pin=["calc__add"]) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
    asleep = FakeUpstream("calc", ["add", "subtract"], BOTH)
    async with proxy_over(asleep, store=store, pin=["calc__add"]) as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["calc__add", "call_tool", "call_tool_write", "discover_tools"]
        found = await stage.client.discover("subtract")
        assert asleep.starts == 0
        assert stage.app.upstreams["calc"].state is State.KNOWN
        # The first call starts it, and is answered.
        assert said(await stage.client.call_tool("calc__subtract", {})) == "subtract"
    assert [match["name"] for match in found["matches"]] == ["calc__subtract"]
    assert asleep.starts == 1


async def test_pings_are_answered_while_the_first_list_of_many_tools_is_made() -> None:
    servers = [FakeUpstream(f"s{at}", [f"tool_{each}" for each in range(700)]) for at in range(3)]
    async with proxy_over(*servers, list_tokens=3000, list_fill=True, list_names=False) as stage:
        await stage.client.initialize()
        while stage.app.upstreams.unlisted():
            await asyncio.sleep(0.01)
        listing = stage.client.post("tools/list")
        pings = 0
        while listing not in stage.client._raw:
            await stage.client.reply(stage.client.post("ping"))
            pings += 1
        listed = (await stage.client.reply(listing))["result"]["tools"]
        assert pings > 1  # in one go, no more than one comes between
        assert len(listed) > 10


@requirement("start:cold-deadline")
async def test_the_first_list_waits_for_cold_upstreams_but_not_beyond_the_deadline() -> None:
    quick, slow = FakeUpstream("quick", ["a"]), FakeUpstream("slow", ["b"], gate=asyncio.Event())
    async with proxy_over(quick, slow, pin=["*"], cold_list_s=2.0) as stage:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["call_tool", "call_tool_write", "discover_tools", "quick__a"]
        assert 1.9 < loop.time() - began < 2.1
        assert slow.gate is not None
        slow.gate.set()
        await stage.client.heard(LIST_CHANGED)
        assert await stage.client.list_tools() == [
            "call_tool",
            "call_tool_write",
            "discover_tools",
            "quick__a",
            "slow__b",
        ]


@requirement("start:cold-deadline")
async def test_the_first_list_comes_as_soon_as_every_upstream_has_answered_or_failed() -> None:
    good = FakeUpstream("good", ["a"])
    bad = FakeUpstream("bad", missing="command 'nope' was not found")
    async with proxy_over(good, bad, pin=["*"], cold_list_s=100) as stage:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await stage.client.list_tools() == ["call_tool", "call_tool_write", "discover_tools", "good__a"]
        assert loop.time() - began < 0.5


@requirement("start:search-waits")
@pytest.mark.parametrize("modern", [False, True])
async def test_a_search_while_servers_start_waits_for_them_and_finds_their_tools(modern: bool) -> None:
    slow = FakeUpstream("slow", ["divide"], BOTH, gate=asyncio.Event())
    async with proxy_over(FakeUpstream("calc", ["add"], BOTH), slow, cold_list_s=0.1) as stage:
        client = stage.client.modern() if modern else stage.client
        if not modern:
            await client.initialize()
        listed = (await client.ask("tools/list"))["tools"]
        (own,) = (each["description"] for each in listed if each["name"] == "discover_tools")
        assert "1 tool on 1 server so far (1 server not listed yet)" in own
        arguments = {"task": "divide", "structured": True}
        search = client.post("tools/call", {"name": "discover_tools", "arguments": arguments})
        await client.ask("resources/list")
        assert slow.gate is not None
        slow.gate.set()
        found = (await client.result(search))["structuredContent"]
        listed = (await client.ask("tools/list"))["tools"]
    assert [each["name"] for each in found["matches"]] == ["slow__divide"]
    (own,) = (each["description"] for each in listed if each["name"] == "discover_tools")
    assert "2 tools on 2 servers;" in own


@requirement("start:offline-cause")
async def test_a_search_that_finds_nothing_while_servers_start_blames_no_missing_tool() -> None:
    slow = FakeUpstream("slow", ["divide"], gate=asyncio.Event())
    async with proxy_over(slow, cold_list_s=0.1, cold_search_s=0.2) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await stage.client.discover("divide")
        (miss,) = stage.misses()
    assert (miss.noticed, miss.cause) == ("nothing_found", "offline")
    assert miss.change == "none: the tools of 'slow' were not known yet; the next search finds them"


@requirement("start:offline-cause")
@pytest.mark.parametrize(
    ("task", "cause", "change"),
    [
        ("quux zyzzy", "unknown", "add a server that has such a tool"),
        ("quux on the slow machine", "offline", "none: the tools of 'slow' were not known yet"),
        ("quux for whoever is chatty", "offline", "see why the tools of 'chatty' are not known: foretool doctor"),
    ],
)
async def test_a_search_in_vain_blames_a_server_only_if_it_probably_has_the_tool(
    task: str, cause: str, change: str
) -> None:
    slow = FakeUpstream("slow", ["divide"], gate=asyncio.Event())
    dead = FakeUpstream("chatty", ["say"], missing="command 'chatty' was not found")
    async with proxy_over(FakeUpstream("calc", ["add"]), slow, dead, cold_list_s=0.1, cold_search_s=0.2) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await stage.client.discover(task)
        (miss,) = stage.misses()
    assert (miss.cause, miss.change[: len(change)]) == (cause, change)


@requirement("start:greeting-at-once")
async def test_the_greeting_waits_for_nobody() -> None:
    slow = FakeUpstream("slow", ["b"], gate=asyncio.Event())
    async with proxy_over(slow) as stage:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await stage.client.initialize()
        await stage.connect().modern().ask("server/discover")
        assert loop.time() == began


@requirement("start:call-waits")
async def test_a_call_to_an_upstream_that_is_still_starting_waits_for_it() -> None:
    slow = FakeUpstream("slow", ["b"], gate=asyncio.Event())
    async with proxy_over(slow, cold_list_s=0.1) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        call = client.post("tools/call", {"name": "slow__b", "arguments": {}})
        await client.ask("ping")
        assert slow.gate is not None
        slow.gate.set()
        assert said(await client.result(call)) == "b"


@requirement("start:failed-upstream-named")
async def test_a_call_to_an_upstream_that_never_started_says_which_and_why() -> None:
    bad = FakeUpstream("bad", ["b"], missing="command 'nope' was not found")
    async with proxy_over(bad) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        try:
            answer = said(await stage.client.call_tool("bad__b", {}))
        except Failed as error:
            answer = error.message
    assert "'bad'" in answer
    assert "command 'nope' was not found" in answer


@requirement("start:failed-upstream-retried")
async def test_an_upstream_that_could_not_start_is_tried_again_by_the_call_that_wants_it() -> None:
    bad = FakeUpstream("bad", ["b"], missing="command 'nope' was not found")
    async with proxy_over(bad) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        bad.missing = ""
        assert said(await stage.client.call_tool("bad__b", {})) == "b"


@requirement("start:offline-cause")
async def test_a_tool_of_an_upstream_unknown_at_the_list_is_a_miss_with_cause_offline() -> None:
    slow = FakeUpstream("slow", ["b"], gate=asyncio.Event())
    async with proxy_over(slow, cold_list_s=0.1) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        assert slow.gate is not None
        slow.gate.set()
        await client.call_tool("slow__b", {})
        (miss,) = stage.misses()
    assert (miss.tool, miss.noticed, miss.cause, miss.recovered) == ("slow__b", "call", "offline", "called")


@requirement("start:era-remembered")
async def test_the_era_of_an_upstream_is_remembered_across_runs() -> None:
    store, _ = failing_store()
    async with proxy_over(FakeUpstream("calc", ["add"]), store=store) as stage:
        await stage.client.modern().list_tools()
    again = FakeUpstream("calc", ["add"])
    async with proxy_over(again, store=store) as stage:
        await stage.client.modern().call_tool("calc__add", {})
    assert again.count("server/discover") == 0
    assert again.count("initialize") == 1


@requirement("start:empty")
async def test_an_upstream_that_listed_no_tools_is_asked_again_by_the_next_run() -> None:
    store, _ = failing_store()
    async with proxy_over(FakeUpstream("calc", []), store=store) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
    later = FakeUpstream("calc", ["add"], entry={"trust": "auto"})
    async with proxy_over(later, store=store, policy="full") as stage:
        await stage.client.initialize()
        assert "calc__add" in await stage.client.list_tools()
    promptly = FakeUpstream("notes", [], capabilities={"prompts": {}})
    for starts in (1, 1):
        async with proxy_over(promptly, store=store) as stage:
            await stage.client.initialize()
            await stage.client.list_tools()
        assert promptly.starts == starts


@requirement("start:empty")
async def test_an_upstream_that_listed_no_tools_is_asked_again_by_the_next_conversation() -> None:
    upstream = FakeUpstream("calc", [], entry={"trust": "auto"})
    async with proxy_over(upstream, policy="full") as stage:
        await stage.client.initialize()
        assert "calc__add" not in await stage.client.list_tools()
        upstream.tools = ["add"]
        other = stage.connect()
        await other.initialize()
        await upstream.asked("tools/list", 2)
        await stage.client.heard(LIST_CHANGED)
        assert "calc__add" in await other.list_tools()
        await stage.connect().initialize()
        await asyncio.sleep(1)
    assert (upstream.starts, upstream.count("tools/list")) == (1, 2)


@requirement("start:cold-call")
async def test_a_call_does_not_wait_longer_for_a_silent_upstream_than_a_call_may_take() -> None:
    silent = FakeUpstream("slow", ["b"], gate=asyncio.Event(), entry={"timeout_s": 3})
    async with proxy_over(silent) as stage:
        await stage.client.initialize()
        loop = asyncio.get_running_loop()
        began = loop.time()
        result = await stage.client.call_tool("slow__b", {})
        assert loop.time() - began == pytest.approx(3, abs=0.5)
    assert result["isError"] is True
    assert "slow" in said(result)


@requirement("names:deterministic", "names:collisions")
@pytest.mark.parametrize("late", ["first", "second"])
async def test_whoever_lists_first_on_a_fresh_store_the_order_of_the_config_decides_who_gets_a_name(late: str) -> None:
    first = FakeUpstream("first", [tool("add", "of the first")], entry={"prefix": ""})
    second = FakeUpstream("second", [tool("add", "of the second")], entry={"prefix": ""})
    gate = {"first": first, "second": second}[late].gate = asyncio.Event()
    store, _ = failing_store()
    async with proxy_over(first, second, store=store, policy="full") as stage:
        await stage.client.initialize()
        listing = stage.client.post("tools/list")
        await asyncio.sleep(0.5)
        gate.set()
        listed = (await stage.client.result(listing))["tools"]
    assert {each["name"]: each["description"] for each in listed if "add" in each["name"]} == {
        "add": "of the first", "second__add": "of the second",
    }  # fmt: skip
    assert store.catalog.exposed_names() == {"add": ("first", "add"), "second__add": ("second", "add")}


@requirement("names:collisions")
async def test_a_name_that_a_client_was_shown_stays_when_an_upstream_before_it_lists_at_last() -> None:
    first = FakeUpstream("first", ["add"], entry={"prefix": ""}, gate=asyncio.Event())
    second = FakeUpstream("second", ["add"], entry={"prefix": ""})
    async with proxy_over(first, second, policy="full", cold_list_s=1) as stage:
        client = stage.client
        await client.initialize()
        assert "add" in await client.list_tools()
        assert first.gate is not None
        first.gate.set()
        await client.heard(LIST_CHANGED)
        assert [name for name in await client.list_tools() if "add" in name] == ["add", "first__add"]
        await client.call_tool("add", {})
    assert second.calls == [("add", {})]


@requirement("start:cold-deadline")
@on_the_real_clock
async def test_over_http_the_deadline_begins_with_the_first_client_and_not_with_the_process() -> None:
    upstream = FakeUpstream("calc", ["add"], gate=asyncio.Event())
    async with http_over(upstream, policy="full", cold_list_s=0.2) as (_, http):
        await asyncio.sleep(0.3)  # of real time: nobody has come yet, and nothing was started
        assert upstream.starts == 0
        caller = await Caller(http).greet()
        listing = asyncio.create_task(caller.tools())
        await asyncio.sleep(0)
        assert upstream.gate is not None
        upstream.gate.set()
        assert "calc__add" in await listing


@requirement("profile:denied")
async def test_while_servers_start_a_tool_of_another_profile_is_answered_when_a_name_of_nobody_is() -> None:
    own, other = FakeUpstream("own", ["a"], gate=asyncio.Event()), FakeUpstream("other", ["x"])
    assert own.gate is not None
    async with proxy_over(own, other, profiles={"p": {"servers": ["own"]}}) as stage:
        await stage.client.initialize()
        await stage.client.until(lambda: stage.app.catalog.find("other__x") is not None)
        client = stage.connect("p", transport="http")
        await client.initialize()
        asked = [client.post("tools/call", {"name": name, "arguments": {}}) for name in ("other__x", "other__y")]
        await client.ask("ping")
        assert not any(each in client._raw for each in asked)
        own.gate.set()
        answers = [(await client.reply(each))["error"]["message"] for each in asked]
    assert answers[0].replace("other__x", "other__y") == answers[1]
    assert other.calls == []
