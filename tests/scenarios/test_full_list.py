"""`full`: everything is listed, upstream changes alone move the list."""

from __future__ import annotations

import pytest
from fakes import LIST_CHANGED, FakeUpstream, proxy_over, tool
from requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("list:full")
async def test_everything_is_listed_and_pins_are_marked_always_load() -> None:
    upstream = FakeUpstream("calc", ["add", "subtract", "divide"], entry={"pin": ["add"]})
    async with proxy_over(upstream, policy="full", list_tokens=0) as stage:
        await stage.client.initialize()
        listed = (await stage.client.ask("tools/list"))["tools"]
    marked = {each["name"]: each.get("_meta") for each in listed}
    always = {"anthropic/alwaysLoad": True}
    assert marked == {
        "calc__add": always,
        "calc__divide": None,
        "calc__subtract": None,
        "call_tool": always,
        "call_tool_write": always,
        "discover_tools": always,
    }


@requirement("list:full")
async def test_discoveries_and_calls_leave_it_alone_and_nothing_is_a_miss() -> None:
    async with proxy_over(FakeUpstream("calc", ["add", "subtract"]), policy="full") as stage:
        client = stage.client
        await client.initialize()
        before = await client.list_tools()
        await client.discover("add numbers")
        await client.call_tool("calc__add", {})
        assert await client.list_tools() == before
        assert stage.misses() == []
    assert client.count(LIST_CHANGED) == 0


@requirement("list:definition-verbatim")
async def test_a_definition_keeps_every_member_its_upstream_wrote() -> None:
    written = tool(
        "plot",
        "Draws",
        {"x": {"type": "number", "default": 1.0, "maximum": 12345678901234567890123}},
        title="Plot",
        annotations={"readOnlyHint": True},
        outputSchema={"type": "object"},
        icons=[{"src": "data:image/png;base64,AAAA"}],
        execution={"taskSupport": "forbidden"},
        **{"x-unknown": [1, None], "_meta": {"vendor/key": {"a": 1}}},
    )
    async with proxy_over(FakeUpstream("calc", [written]), policy="full") as stage:
        await stage.client.initialize()
        listed = {each["name"]: each for each in (await stage.client.ask("tools/list"))["tools"]}
        line = next(line for line in stage.client.lines if b"calc__plot" in line)
    assert listed["calc__plot"] == {**written, "name": "calc__plot"}
    assert b'"default": 1.0' in line or b'"default":1.0' in line
    assert b"12345678901234567890123" in line


@requirement("list:fan-in")
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(("policy", "told"), [("full", 1), ("frozen", 0)])
async def test_an_announcement_without_a_difference_reaches_those_who_see_everything_alone(
    policy: str, told: int, modern: bool
) -> None:
    upstream = FakeUpstream("calc", ["add"])
    async with proxy_over(upstream, policy=policy) as stage:
        client = stage.client.modern() if modern else stage.client
        if modern:
            client.post("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        else:
            await client.initialize()
        await client.list_tools()
        await client.call_tool("calc__add")
        upstream.change("add")
        if told:
            await client.heard(LIST_CHANGED)
        else:
            await upstream.asked("tools/list", 2)
            stage.app.announcements.announce()
        await client.call_tool("calc__add")
    assert client.count(LIST_CHANGED) == told
