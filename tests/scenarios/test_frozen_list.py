"""`frozen`: the list is the same, byte for byte, until an epoch begins; nothing a client asks for moves it."""

from __future__ import annotations

import asyncio

import pytest
from fakes import BOTH, LIST_CHANGED, FakeUpstream, failing_store, proxy_over, set_settings, tool
from requirements import requirement

from foretool.server.protocol import jsonrpc

pytestmark = pytest.mark.anyio


def github(count: int = 30) -> FakeUpstream:
    return FakeUpstream("github", [tool(f"tool_{n}", f"Works on issue number {n}") for n in range(count)], BOTH)


def listing(line: bytes) -> bytes:
    """The result of a reply, as it was sent."""
    result = jsonrpc.decode(line).result
    assert isinstance(result, jsonrpc.Raw)
    return bytes(result)


@requirement("list:frozen:byte-identical")
@pytest.mark.parametrize("modern", [False, True])
async def test_two_clients_get_the_same_bytes(modern: bool) -> None:
    async with proxy_over(github(), policy="frozen", pin=["github__tool_1*"]) as stage:
        first, second = stage.client, stage.connect()
        if modern:
            first.modern("one")
            second.modern("two")
        lists = []
        for client in (first, first, second):
            request = client.post("tools/list")
            await client.reply(request)
            lists.append(listing(client.raw(request)))
    assert lists[0] == lists[1] == lists[2]
    assert b"github__tool_1" in lists[0]


@requirement("list:frozen:byte-identical")
async def test_a_restart_serves_the_same_bytes() -> None:
    store, _ = failing_store()
    lists = []
    for _ in range(2):
        async with proxy_over(
            github(), store=store, profile="p", profiles={"p": {"policy": "frozen", "about": "issues"}}
        ) as stage:
            await stage.client.initialize()
            request = stage.client.post("tools/list")
            await stage.client.reply(request)
            lists.append(listing(stage.client.raw(request)))
    assert lists[0] == lists[1]


@requirement("list:frozen:unmoved-by-requests")
@pytest.mark.parametrize("modern", [False, True])
async def test_calls_and_discoveries_do_not_move_it(modern: bool) -> None:
    async with proxy_over(github(), policy="frozen", list_tokens=800) as stage:
        client = stage.client.modern() if modern else stage.client
        before = await client.ask("tools/list")
        for number in range(10):
            await client.call_tool(f"github__tool_{number}", {})
            await client.discover(f"issue number {number}")
        after = await client.ask("tools/list")
        # A second client begins after all that: the list is one for the profile, not for the connection.
        late = stage.connect()
        if modern:
            late.modern("late")
        late_list = await late.ask("tools/list")
    assert before == after == late_list
    assert client.count(LIST_CHANGED) == 0


@requirement("list:frozen:sorted")
async def test_it_is_sorted_by_name_whatever_the_order_in_which_upstreams_answer() -> None:
    first, second = FakeUpstream("zeta", ["b", "a"]), FakeUpstream("alpha", ["z"])
    async with proxy_over(first, second, policy="frozen", pin=["*"]) as stage:
        names = await stage.client.list_tools()
    assert names == ["alpha__z", "call_tool", "call_tool_write", "discover_tools", "zeta__a", "zeta__b"]


@requirement("list:frozen:epoch")
async def test_a_new_epoch_brings_in_what_was_used_and_says_so_once() -> None:
    async with proxy_over(github(), policy="frozen", epoch_s=0.001) as stage:
        client = stage.client
        await client.initialize()
        before = await client.list_tools()
        await client.call_tool("github__tool_7", {})
        # The housekeeping of the app finds that the list is older than an epoch.
        await client.heard(LIST_CHANGED)
        after = await client.list_tools()
    assert "github__tool_7" not in before
    assert "github__tool_7" in after


@requirement("list:frozen:first-week")
@pytest.mark.parametrize("modern", [False, True])
async def test_in_the_first_week_each_session_lists_what_the_one_before_it_used(modern: bool) -> None:
    store, _ = failing_store()
    lists = []
    for number in range(3):
        async with proxy_over(github(), store=store, policy="frozen") as stage:
            client = stage.client.modern() if modern else stage.client
            if not modern:
                await client.initialize()
            lists.append({name for name in await client.list_tools() if name.startswith("github")})
            await client.call_tool(f"github__tool_{number}", {})
            # What is called moves no list that is in use.
            assert {name for name in await client.list_tools() if name.startswith("github")} == lists[-1]
            assert client.count(LIST_CHANGED) == 0
    assert lists == [set(), {"github__tool_0"}, {"github__tool_0", "github__tool_1"}]
    assert len(store.calls.misses()) == 3


@requirement("list:frozen:first-week")
async def test_a_session_that_shares_a_list_with_a_running_one_does_not_move_it() -> None:
    async with proxy_over(github(), policy="frozen") as stage:
        await stage.client.initialize()
        before = await stage.client.list_tools()
        await stage.client.call_tool("github__tool_7", {})
        second = stage.connect()
        await second.initialize()
        assert await second.list_tools() == before
        assert await stage.client.list_tools() == before
        assert (stage.client.count(LIST_CHANGED), second.count(LIST_CHANGED)) == (0, 0)
        # The second session lacked a tool that the next list has, and not for want of tokens.
        await second.call_tool("github__tool_7", {})
        causes = [each.cause for each in stage.misses()]
    assert sorted(causes) == ["rank", "stale"]


@requirement("list:frozen:catalog-change")
async def test_a_changed_upstream_moves_it_and_every_client_is_told() -> None:
    upstream = FakeUpstream("calc", ["add"], entry={"trust": "auto"})
    async with proxy_over(upstream, policy="frozen", pin=["calc__*"]) as stage:
        first, second = stage.client, stage.connect()
        for client in (first, second):
            await client.initialize()
            assert await client.list_tools() == ["calc__add", "call_tool", "call_tool_write", "discover_tools"]
        upstream.change("add", "divide")
        for client in (first, second):
            await client.heard(LIST_CHANGED)
            assert await client.list_tools() == [
                "calc__add",
                "calc__divide",
                "call_tool",
                "call_tool_write",
                "discover_tools",
            ]
    assert (first.count(LIST_CHANGED), second.count(LIST_CHANGED)) == (1, 1)


@requirement("list:modern:caching")
async def test_a_modern_list_may_be_cached_for_an_hour_by_its_client_alone() -> None:
    async with proxy_over(github()) as stage:
        listed = await stage.client.modern().ask("tools/list")
    assert (listed["ttlMs"], listed["cacheScope"], listed["resultType"]) == (3_600_000, "private", "complete")


@requirement("list:modern:ttl")
async def test_a_list_that_may_change_soon_is_not_cached_for_long() -> None:
    quick, slow = FakeUpstream("quick", ["a"], BOTH), FakeUpstream("slow", ["b"], BOTH, gate=asyncio.Event())
    async with proxy_over(quick, slow, cold_list_s=0.1) as stage:
        client = stage.client.modern()
        incomplete = await client.ask("tools/list")
        assert slow.gate is not None
        slow.gate.set()
    async with proxy_over(github(), policy="growing") as stage:
        growing = await stage.client.modern().ask("tools/list")
    async with proxy_over(github(), epoch_s=60) as stage:
        short = await stage.client.modern().ask("tools/list")
    async with proxy_over(github(), epoch_s=0) as stage:
        endless = await stage.client.modern().ask("tools/list")
    assert (incomplete["ttlMs"], growing["ttlMs"], endless["ttlMs"]) == (2_000, 0, 3_600_000)
    assert 50_000 < short["ttlMs"] <= 60_000


@requirement("list:one-page")
async def test_an_unknown_cursor_is_an_error_since_the_list_is_one_page() -> None:
    async with proxy_over(github()) as stage:
        reply = await stage.client.reply(stage.client.post("tools/list", {"cursor": "2"}))
    assert reply["error"]["code"] == jsonrpc.INVALID_PARAMS


@requirement("list:epoch-announced")
async def test_an_epoch_is_announced_to_every_listener_of_either_era_and_to_no_one_else() -> None:
    async with proxy_over(github(), policy="frozen") as stage:
        legacy, modern = [stage.client, stage.connect()], [stage.connect().modern("a"), stage.connect().modern("b")]
        silent = stage.connect().modern("silent")
        for client in legacy:
            await client.initialize()
        for client in (*legacy, *modern, silent):
            assert "github__tool_7" not in await client.list_tools()
        for client in modern:
            client.post("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="L")
            await client.heard("notifications/subscriptions/acknowledged")
        await silent.call_tool("github__tool_7", {})
        set_settings(stage, epoch_s=0.001)  # the epoch is over
        for client in (*legacy, *modern):
            await client.heard(LIST_CHANGED)
        set_settings(stage, epoch_s=86_400.0)
        lists = []
        for client in (*legacy, *modern, silent):
            request = client.post("tools/list")
            await client.reply(request)
            lists.append(listing(client.raw(request)))
        heard = [client.count(LIST_CHANGED) for client in (*legacy, *modern, silent)]
    assert heard == [1, 1, 1, 1, 0]
    assert all(b"github__tool_7" in each for each in lists)
    assert (len(set(lists[:2])), len(set(lists[2:]))) == (1, 1)


@requirement("list:growing:allowed")
@pytest.mark.parametrize(
    ("policy", "name", "modern"),
    [("auto", "claude-code", True), ("auto", "nobody", True), ("frozen", "claude-code", False), ("full", "x", True)],
)
async def test_where_a_list_may_not_grow_a_discovery_changes_nothing(policy: str, name: str, modern: bool) -> None:
    async with proxy_over(github(), policy=policy) as stage:
        client = stage.client.modern(name) if modern else stage.client
        if modern:
            client.post("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        else:
            await client.initialize(name)
        before = await client.ask("tools/list")
        answer = await client.discover(names=["github__tool_7"])
        after = await client.ask("tools/list")
    assert [match["name"] for match in answer["matches"]] == ["github__tool_7"]
    assert before == after
    assert client.count(LIST_CHANGED) == 0
