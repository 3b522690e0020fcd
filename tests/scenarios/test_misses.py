"""Every needed tool that a client did not see is on record, with why it was hidden and what would have shown it."""

from __future__ import annotations

import pytest
from fakes import Failed, FakeUpstream, changed, failing_store, proxy_over, said, tool
from requirements import requirement

from foretool.server.protocol import jsonrpc
from foretool.storage.records import Miss, ToolId

pytestmark = pytest.mark.anyio


def calc() -> FakeUpstream:
    return FakeUpstream("calc", [tool("add", "Adds numbers"), tool("subtract", "Takes one number from another")])


def bare(miss: Miss) -> Miss:
    """Without what differs from run to run."""
    return changed(miss, session="", at=0.0)


SUBTRACT = Miss(
    session="",
    at=0.0,
    tool="calc__subtract",
    noticed="call",
    cause="rank",
    rank=0,
    of=0,
    query="",
    history=(),
    exposure=1,
    discovery=0,
    change="pin calc__subtract, or let it be used: the working set follows usage",
    recovered="called",
    turns=0,
    tokens=0,
    id=1,
    call=1,
)


@requirement("miss:hidden-call")
async def test_calling_a_hidden_tool_reaches_the_upstream_and_leaves_a_miss() -> None:
    upstream = calc()
    async with proxy_over(upstream, pin=["calc__add"]) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        result = await stage.client.call_tool("calc__subtract", {"a": 5, "b": 2})
        assert [bare(miss) for miss in stage.misses()] == [SUBTRACT]
        (call,) = stage.calls()
    assert upstream.calls == [("subtract", {"a": 5, "b": 2})]
    assert result == {"content": [{"type": "text", "text": "subtract"}]}
    assert (call.tool, call.via, call.hidden, call.outcome, call.sent) == ("calc__subtract", "name", True, "ok", True)


@requirement("miss:bridge")
async def test_calling_a_hidden_tool_through_the_bridge_leaves_a_miss_of_its_own_kind() -> None:
    upstream = calc()
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        result = await stage.client.call_tool("call_tool_write", {"name": "calc__subtract", "arguments": {"a": 5}})
        assert [bare(miss) for miss in stage.misses()] == [changed(SUBTRACT, noticed="bridge")]
        assert [call.via for call in stage.calls()] == ["bridge"]
    assert upstream.calls == [("subtract", {"a": 5})]
    assert said(result) == "subtract"


@requirement("miss:kept-list")
async def test_before_a_client_has_fetched_a_list_it_goes_by_the_last_one_of_its_kind() -> None:
    """VS Code shows the model the list of an earlier session, starts the server for a call, and lists behind it."""
    upstream = FakeUpstream("calc", [tool(each, f"Does {each}") for each in ("add", "subtract", "divide")])
    async with proxy_over(upstream, pin=["calc__add"], list_names=False, list_tokens=100) as stage:
        await stage.client.initialize("Visual Studio Code")
        await stage.client.list_tools()
        later = stage.connect()
        await later.initialize("Visual Studio Code")
        for name in ("calc__add", "calc__subtract"):
            await later.call_tool(name, {})
        assert [(miss.tool, miss.cause) for miss in stage.misses()] == [("calc__subtract", "unknown")]
        assert [call.hidden for call in stage.calls()] == [False, True]


@requirement("miss:listed-is-none")
async def test_calling_a_listed_tool_is_no_miss_by_name_or_through_the_bridge() -> None:
    async with proxy_over(calc(), pin=["calc__add"]) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await stage.client.call_tool("calc__add", {})
        await stage.client.call_tool("call_tool_write", {"name": "calc__add", "arguments": {}})
        assert stage.misses() == []
        assert [call.hidden for call in stage.calls()] == [False, False]


@requirement("miss:discovery")
async def test_a_discovery_followed_by_a_call_of_what_it_found_is_a_miss_with_its_rank() -> None:
    async with proxy_over(calc(), policy="frozen") as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        answer = await client.discover("add numbers\ntake one number from another")
        await client.call_tool("calc__add", {})
        found = [match["name"] for match in answer["matches"]]
        discovery = stage.store.discoveries.get(1)
        assert discovery is not None
        (miss,) = stage.misses()
        (call,) = stage.calls()
    rank = found.index("calc__add") + 1
    assert bare(miss) == changed(
        SUBTRACT,
        tool="calc__add",
        noticed="discovery",
        rank=rank,
        of=2,
        query="add numbers\ntake one number from another",
        discovery=1,
        change="pin calc__add, or let it be used: the working set follows usage",
        recovered="discovered",
        turns=1,
        tokens=discovery.tokens,
        parts=discovery.matches[rank - 1].parts,
    )
    assert [match.tool for match in discovery.matches] == found
    assert call.discovery == 1


@requirement("miss:history")
async def test_a_miss_keeps_the_calls_before_it_oldest_first() -> None:
    async with proxy_over(calc(), pin=["calc__add"]) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        for _ in range(2):
            await client.call_tool("calc__add", {})
        await client.call_tool("calc__subtract", {})
        (miss,) = stage.misses()
    assert miss.history == (ToolId("calc__add"), ToolId("calc__add"))
    assert miss.call == 3


@requirement("miss:nothing-found")
async def test_a_discovery_that_finds_nothing_is_a_miss_and_shows_the_servers_instead() -> None:
    async with proxy_over(calc()) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        answer = await client.discover("quux zyzzy")
        (miss,) = stage.misses()
    assert (answer["confidence"], answer["matches"], list(answer["servers"])) == ("none", [], ["calc"])
    assert (miss.tool, miss.noticed, miss.cause, miss.query) == ("", "nothing_found", "unknown", "quux zyzzy")
    assert (miss.recovered, miss.discovery, miss.call) == ("no", 1, 0)


@requirement("miss:unknown-name")
async def test_an_unknown_name_is_an_error_and_a_miss() -> None:
    upstream = calc()
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        with pytest.raises(Failed) as unknown:
            await client.call_tool("weather__forecast", {})
        through_the_bridge = await client.call_tool("call_tool_write", {"name": "weather__forecast"})
        misses = [(miss.tool, miss.noticed, miss.cause, miss.recovered) for miss in stage.misses()]
        assert stage.calls() == []
    assert unknown.value.code == jsonrpc.INVALID_PARAMS
    assert "weather__forecast" in unknown.value.message
    assert through_the_bridge["isError"] is True
    assert misses == [("weather__forecast", "unknown_name", "unknown", "no")] * 2
    assert upstream.calls == []


@requirement("miss:near-name")
async def test_a_nearly_right_name_is_suggested_and_not_executed() -> None:
    files = FakeUpstream("files", [tool("readFile", annotations={"readOnlyHint": True}), tool("writeFile")])
    async with proxy_over(files) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        for wrong, right in (("read_file", "readFile"), ("write_file", "writeFile"), ("readFil", "readFile")):
            with pytest.raises(Failed) as refused:
                await client.call_tool(f"files__{wrong}", {})
            assert f"files__{right}" in refused.value.message
        assert [(miss.noticed, miss.recovered) for miss in stage.misses()] == [("unknown_name", "suggested")] * 3
    assert files.calls == []


@requirement("miss:near-name")
async def test_a_nearly_right_name_that_may_mean_two_tools_is_not_executed() -> None:
    reads = {"annotations": {"readOnlyHint": True}}
    one, other = FakeUpstream("one", [tool("getItem", **reads)]), FakeUpstream("two", [tool("get_item", **reads)])
    async with proxy_over(one, other) as stage:
        await stage.client.initialize()
        with pytest.raises(Failed) as ambiguous:
            await stage.client.call_tool("GetItem", {})
    assert "one__getItem" in ambiguous.value.message
    assert "two__get_item" in ambiguous.value.message
    assert one.calls == other.calls == []


@requirement("miss:budget")
async def test_a_tool_that_lost_the_competition_for_the_budget_says_so_with_its_rank() -> None:
    store, _ = failing_store()
    upstream = FakeUpstream("calc", [tool("big", "word " * 800), tool("often", "x")])
    async with proxy_over(upstream, store=store) as stage:
        await stage.client.initialize()
        for name in ("often", "often", "often", "big"):
            await stage.client.call_tool(f"calc__{name}", {})
    async with proxy_over(upstream, store=store, list_tokens=500) as stage:
        await stage.client.initialize()
        assert "calc__big" not in await stage.client.list_tools()
        await stage.client.call_tool("calc__big", {})
        miss = stage.misses()[-1]
    assert (miss.tool, miss.cause, miss.rank, miss.of) == ("calc__big", "budget", 2, 2)
    assert miss.change == "raise list_tokens over 500, or pin calc__big"


@requirement("names:every-spelling")
@pytest.mark.parametrize(
    "name",
    [
        "calc__subtract", "subtract", "calc/subtract", "calc.subtract", "mcp__foretool__calc__subtract",
        "mcp__plugin_foretool_foretool__calc__subtract", "mcp__plugin_foretool_foretool__subtract",
    ],
)  # fmt: skip
async def test_a_tool_answers_to_every_exact_spelling_of_its_name(name: str) -> None:
    async with proxy_over(calc(), FakeUpstream("plugin", ["foretool"])) as stage:
        await stage.client.initialize()
        assert said(await stage.client.call_tool(name, {})) == "subtract"


@requirement("miss:search")
async def test_a_tool_that_a_search_named_as_the_nearest_one_is_found_by_it() -> None:
    task = "please help me to decide what present my brother wants for his work"
    others = FakeUpstream("other", [tool(f"t{place}", "Does some work for a brother") for place in range(8)])
    async with proxy_over(calc(), others, policy="frozen") as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        answer = await stage.client.discover(task)
        assert (answer["confidence"], answer["matches"]) == ("none", [])
        assert [(miss.noticed, miss.cause) for miss in stage.misses()] == [("nothing_found", "gate")]
        name = answer["nearest"][1]["name"]
        await stage.client.call_tool("call_tool_write", {"name": name, "arguments": {}})
        misses = [(miss.tool, miss.noticed, miss.rank, miss.turns) for miss in stage.misses()]
    assert misses == [(name, "discovery", 2, 1)]


@requirement("miss:search")
async def test_a_search_whose_tools_are_not_called_has_a_cause_of_its_own_however_late_it_came() -> None:
    store, _ = failing_store()
    async with proxy_over(calc(), store=store) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await stage.client.discover("add numbers")
        await stage.client.call_tool("call_tool_write", {"name": "numbers_total", "arguments": {}})
        await stage.client.discover("take one number from another")
        assert [(miss.kind, miss.cause, miss.query) for miss in stage.misses()] == [
            ("search", "unused", "add numbers"), ("name", "unknown", ""),
        ]  # fmt: skip
    # The client has gone, so nothing follows the last search any more.
    last = store.calls.misses(0.0)[0]
    assert (last.kind, last.noticed, last.cause) == ("search", "search", "unused")
    assert (last.query, last.tool, last.turns) == ("take one number from another", "", 1)
    assert [each.task for each in store.discoveries.recent(-1)[::-1]] == [
        "add numbers", "", "take one number from another",
    ]  # fmt: skip
