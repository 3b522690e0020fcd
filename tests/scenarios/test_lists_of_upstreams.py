"""What upstreams list: broken tools are dropped alone, changes are followed, pages are read to the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from callers import on_the_real_clock
from fakes import BOTH, LEGACY, LIST_CHANGED, MODERN, FakeUpstream, failing_store, proxy_over, said, tool
from requirements import requirement
from stored_records import saved_upstreams

pytestmark = pytest.mark.anyio

BROKEN: list[Any] = [
    {"name": "no_schema"},
    {"name": "null_schema", "inputSchema": None},
    {"name": "list_schema", "inputSchema": []},
    {"name": "text_schema", "inputSchema": "object"},
    {"name": "array_type", "inputSchema": {"type": "array"}},
    {"name": "union_type", "inputSchema": {"type": ["object", "null"]}},
    {"name": "", "inputSchema": {"type": "object"}},
    {"name": 5, "inputSchema": {"type": "object"}},
    {"inputSchema": {"type": "object"}},
    {"name": "huge", "inputSchema": {"type": "object"}, "description": "x" * 300_000},
    "text",
    7,
    None,
    [],
]


@requirement("catalog:bad-tool")
@pytest.mark.parametrize("broken", BROKEN, ids=range(len(BROKEN)))
async def test_one_bad_tool_is_dropped_alone_and_said(broken: Any) -> None:
    upstream = FakeUpstream("calc", ["add"])
    upstream.scripts["tools/list"] = lambda asked: asked.reply({"tools": [tool("add"), broken, tool("sub")]})
    async with proxy_over(upstream, policy="full") as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == [
            "calc__add",
            "calc__sub",
            "call_tool",
            "call_tool_write",
            "discover_tools",
        ]
        (problem,) = stage.app.catalog.problems_of("calc")
        await asyncio.sleep(1)
        (state,) = stage.store.serving.states()
    assert "dropped" in problem
    assert "tool 2" in problem
    assert state.last_error == problem


@requirement("catalog:odd-tool")
@on_the_real_clock
@pytest.mark.parametrize(
    "odd",
    [
        b'{"name":"odd","description":"\\ud800 alone","inputSchema":{"type":"object"}}',
        b'{"name":"odd","inputSchema":{"type":"object","maximum":1e400}}',
        b'{"name":"odd","inputSchema":{"type":"object","maximum":123456789012345678901234567890}}',
        b'{"name":"odd","description":null,"inputSchema":{"type":"object","properties":null}}',
        b'{"name":"odd","description":7,"title":[],"annotations":"x","inputSchema":{"type":"object","properties":[1]}}',
        b'{"name":"odd","inputSchema":{"type":"object","properties":{"a":true,"b":null,"c":5},"required":"a"}}',
        b'{"name":"odd","inputSchema":{},"annotations":{"destructiveHint":"yes"}}',
        b'{"name":"odd","_meta":5,"inputSchema":{"type":"object"}}',
        b'{"name":"odd","inputSchema":{"type":"object","x":' + b"[" * 190 + b"]" * 190 + b"}}",
        b'{"name":"odd","inputSchema":{"type":"object","x":' + b'{"properties":' * 190 + b"1" + b"}" * 190 + b"}}",
    ],
    ids=range(10),
)
async def test_an_odd_definition_is_listed_found_and_called_or_dropped_and_harms_nothing_else(odd: bytes) -> None:
    upstream = FakeUpstream("calc", [tool("add"), tool("odd")], entry={"pin": ["*"]})
    upstream.scripts["tools/list"] = lambda asked: asked.reply(
        b'{"tools":[%s,{"name":"add","inputSchema":{"type":"object"}}]}' % odd
    )
    store, _ = failing_store()
    for _ in range(2):
        async with proxy_over(upstream, store=store) as stage:
            client = stage.client
            await client.initialize()
            listed = await client.list_tools()
            assert set(listed) >= {"calc__add", "call_tool", "call_tool_write", "discover_tools"}
            await client.discover(names=["calc__odd"])
            await client.discover("odd alone")
            if "calc__odd" in listed:
                assert said(await client.call_tool("calc__odd", {})) == "odd"
                await client.call_tool("call_tool_write", {"name": "calc__odd", "arguments": {}})
            else:
                assert stage.app.catalog.problems_of("calc")
            assert said(await client.call_tool("calc__add", {})) == "add"
            await asyncio.sleep(1)


@requirement("catalog:bad-list")
@pytest.mark.parametrize("answer", [{}, {"tools": None}, {"tools": {}}, {"tools": "x"}, [], 5, None])
async def test_an_upstream_with_a_broken_list_shows_an_error_and_the_others_are_listed(answer: Any) -> None:
    bad, good = FakeUpstream("bad", ["x"]), FakeUpstream("good", ["add"])
    bad.scripts["tools/list"] = lambda asked: asked.reply(answer)
    async with proxy_over(bad, good, policy="full") as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["call_tool", "call_tool_write", "discover_tools", "good__add"]
        error = stage.app.upstreams["bad"].error
    assert "tools could not be listed" in error


@requirement("catalog:bad-list")
async def test_an_upstream_that_refuses_to_list_shows_its_error() -> None:
    bad, good = FakeUpstream("bad", ["x"]), FakeUpstream("good", ["add"])
    bad.scripts["tools/list"] = lambda asked: asked.fail(-32000, "log in first")
    async with proxy_over(bad, good, policy="full") as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["call_tool", "call_tool_write", "discover_tools", "good__add"]
        assert "log in first" in stage.app.upstreams["bad"].error


@requirement("catalog:list-again")
@pytest.mark.parametrize("eras", [LEGACY, MODERN])
async def test_clients_hear_of_the_tools_once_they_can_be_listed(
    eras: tuple[Any, ...], caplog: pytest.LogCaptureFixture
) -> None:
    late = FakeUpstream("calc", ["add"], eras, entry={"pin": ["*"]})
    late.scripts["tools/list"] = lambda asked: asked.fail(-32000, "log in first")
    async with proxy_over(late, policy="full") as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["call_tool", "call_tool_write", "discover_tools"]
        await asyncio.sleep(100)
        (state,) = stage.store.serving.states()
        assert (state.state, state.tools) == ("unlisted", 0)
        assert "log in first" in state.last_error
        del late.scripts["tools/list"]
        await asyncio.sleep(300)
        await stage.client.heard(LIST_CHANGED)
        assert await stage.client.list_tools() == ["calc__add", "call_tool", "call_tool_write", "discover_tools"]
        await asyncio.sleep(1)
        (state,) = stage.store.serving.states()
        assert (state.state, state.tools, state.last_error) == ("ready", 1, "")
    assert [record.message for record in caplog.records if "could not be listed" in record.message] == [
        "upstream 'calc': its tools could not be listed: answered tools/list with error -32000: log in first [FT324];"
        " its documentation may say what it needs first; it is asked again by itself"
    ]


@requirement("catalog:list-again")
async def test_remembered_tools_stay_while_the_list_fails() -> None:
    upstream = FakeUpstream("calc", ["add"])
    store, _ = failing_store()
    async with proxy_over(upstream, store=store, policy="full") as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
    upstream.scripts["tools/list"] = lambda asked: asked.fail(-32000, "log in first")
    async with proxy_over(upstream, store=store, policy="full") as stage:
        await stage.client.initialize()
        listed = ["calc__add", "call_tool", "call_tool_write", "discover_tools"]
        assert await stage.client.list_tools() == listed
        assert said(await stage.client.call_tool("calc__add", {})) == "add"
        await asyncio.sleep(10)
        assert await stage.client.list_tools() == listed
        (state,) = stage.store.serving.states()
        assert (state.state, state.tools) == ("unlisted", 1)


@requirement("catalog:pages")
async def test_a_list_in_pages_is_read_to_its_end() -> None:
    upstream = FakeUpstream("calc", [f"t{n:02}" for n in range(23)], page=5)
    async with proxy_over(upstream, policy="full") as stage:
        await stage.client.initialize()
        assert len(await stage.client.list_tools()) == 26
    assert upstream.count("tools/list") == 5


@requirement("catalog:pages")
async def test_a_list_that_never_ends_is_given_up() -> None:
    upstream = FakeUpstream("calc", ["add"])
    upstream.scripts["tools/list"] = lambda asked: asked.reply({"tools": [], "nextCursor": "again"})
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
    assert upstream.count("tools/list") <= 1000


@requirement("catalog:no-tools")
async def test_an_upstream_without_tools_is_not_asked_for_them() -> None:
    upstream = FakeUpstream("docs", capabilities={"resources": {}})
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["call_tool", "call_tool_write", "discover_tools"]
    assert upstream.count("tools/list") == 0


@requirement("catalog:changes")
@pytest.mark.parametrize("eras", [BOTH, MODERN])
async def test_a_burst_of_changes_is_asked_for_once_and_announced_once(eras: tuple[Any, ...]) -> None:
    upstream = FakeUpstream("calc", ["add"], eras, entry={"pin": ["*"], "trust": "auto"})
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        lists = upstream.count("tools/list")
        for count in range(20):
            upstream.change("add", *(f"t{n}" for n in range(count)))
        await stage.client.heard(LIST_CHANGED)
        assert len(await stage.client.list_tools()) == 23
        await asyncio.sleep(2)
    assert upstream.count("tools/list") == lists + 1
    assert stage.client.count(LIST_CHANGED) == 1


MANY = [f"t{at}" for at in range(900)]


@requirement("catalog:changes")
async def test_calls_go_on_while_a_long_list_is_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop gets its turn between two slices, so that calls are answered before the list is served."""
    # A fast machine takes the whole list in within two slices of the usual size.
    monkeypatch.setattr("foretool.server.transports.tasks.SLICE_S", 0.0005)
    upstream = FakeUpstream("calc", ["add"], entry={"trust": "auto"})
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        upstream.change("add", *MANY)
        await upstream.asked("tools/list", 2)
        answered = 0
        while len(stage.app.catalog.of("calc")) == 1:
            assert said(await stage.client.call_tool("calc__add", {})) == "add"
            answered += 1
        assert len(stage.app.catalog.of("calc")) == 1 + len(MANY)
        assert answered > 1  # in one go, no more than one comes between


@requirement("catalog:changes")
async def test_of_lists_that_come_while_one_is_taken_in_the_latest_is_served() -> None:
    slow, fast = FakeUpstream("slow", ["add"], entry={"trust": "auto"}), FakeUpstream("fast", ["add"])
    fast.entry = {"trust": "auto"}
    async with proxy_over(slow, fast) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        slow.change(*MANY)
        await slow.asked("tools/list", 2)
        for count in range(3):
            fast.change("add", f"new{count}")
            await fast.asked("tools/list", 2 + count)
        while [each.name for each in stage.app.catalog.of("fast")] != ["add", "new2"]:
            await asyncio.sleep(0.01)
        assert len(stage.app.catalog.of("slow")) == len(MANY)
        await asyncio.sleep(1)
        assert [each.name for each in stage.app.catalog.of("fast")] == ["add", "new2"]
        keys = [(record.name, record.fingerprint) for record in saved_upstreams(stage.store)]
        kept = {record.name: [each.name for each in tools] for record, tools in stage.store.catalog.load(keys)}
        assert kept == {"slow": MANY, "fast": ["add", "new2"]}


@requirement("catalog:changes")
async def test_a_server_that_is_removed_while_its_list_is_taken_in_leaves_nothing() -> None:
    upstream, other = FakeUpstream("calc", ["add"], entry={"trust": "auto"}), FakeUpstream("other", ["b"])
    async with proxy_over(upstream, other) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        upstream.change(*MANY)
        await upstream.asked("tools/list", 2)
        await asyncio.sleep(0)
        await stage.app.upstreams["calc"].stop()
        other.change("b", "c")
        await other.asked("tools/list", 2)
        await asyncio.sleep(1)
        assert [each.name for each in stage.app.catalog.of("calc")] == ["add"]


@requirement("catalog:changes")
async def test_a_change_that_changes_nothing_is_not_announced() -> None:
    upstream = FakeUpstream("calc", ["add"], entry={"pin": ["*"]})
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        upstream.change("add")
        await upstream.asked("tools/list", 2)
        await asyncio.sleep(2)
    assert stage.client.notices == []


@requirement("catalog:changes")
async def test_a_tool_that_went_is_unknown_and_one_that_came_is_found() -> None:
    upstream = FakeUpstream("calc", ["old"], entry={"trust": "auto"})
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        upstream.change(tool("fresh", "Brews coffee"))
        await upstream.asked("tools/list", 2)
        await asyncio.sleep(1)
        assert [match["name"] for match in (await client.discover("brew coffee"))["matches"]] == ["calc__fresh"]
        gone = await client.reply(client.post("tools/call", {"name": "calc__old"}))
        remembered = stage.store.catalog.load([(each.name, each.fingerprint) for each in saved_upstreams(stage.store)])
    assert "error" in gone
    assert [each.name for each in remembered[0][1]] == ["fresh"]


@requirement("catalog:duplicate")
async def test_a_tool_listed_twice_is_used_once_and_said() -> None:
    upstream = FakeUpstream("calc", [tool("add", "first"), tool("add", "second")])
    async with proxy_over(upstream, policy="full") as stage:
        await stage.client.initialize()
        listed = (await stage.client.ask("tools/list"))["tools"]
        problems = stage.app.catalog.problems_of("calc")
    assert [each["description"] for each in listed if each["name"] == "calc__add"] == ["first"]
    assert "'add' was listed twice" in problems[0]


@requirement("catalog:filters")
async def test_include_and_exclude_decide_which_tools_exist() -> None:
    upstream = FakeUpstream("calc", ["add", "sub", "danger"], entry={"include": ["a*", "d*"], "exclude": ["danger"]})
    async with proxy_over(upstream, policy="full") as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["calc__add", "call_tool", "call_tool_write", "discover_tools"]
        reply = await stage.client.reply(stage.client.post("tools/call", {"name": "calc__danger"}))
    assert "error" in reply
    assert upstream.calls == []


@requirement("names:empty-prefix")
async def test_an_empty_prefix_exposes_a_tool_under_its_own_name() -> None:
    bare, named = (
        FakeUpstream("calc", ["add"], entry={"prefix": ""}),
        FakeUpstream("other", ["add"], entry={"prefix": "o"}),
    )
    async with proxy_over(bare, named, policy="full") as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["add", "call_tool", "call_tool_write", "discover_tools", "o__add"]
        await stage.client.call_tool("add", {"a": 1})
        await stage.client.call_tool("calc__add", {"a": 2})
        await stage.client.call_tool("other__add", {"a": 3})
    assert bare.calls == [("add", {"a": 1}), ("add", {"a": 2})]
    assert named.calls == [("add", {"a": 3})]
