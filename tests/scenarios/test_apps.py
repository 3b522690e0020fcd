"""MCP Apps: a client that shows pages gets the tools that have one, and can read every page that a server names."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import LEGACY, MODERN, FakeUpstream, Json, proxy_over, tool
from requirements import requirement

from foretool.server.protocol import versions

pytestmark = pytest.mark.anyio

SHOWS: Json = {"extensions": {versions.UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}}


def charts(count: int = 40, **more: Any) -> FakeUpstream:
    page = {"_meta": {"ui": {"resourceUri": "ui://up/chart"}}}
    plain = [tool(f"do_{number}", f"Does the work {number}. " * 8) for number in range(count)]
    return FakeUpstream("up", [*plain, tool("draw_chart", "Draws a chart", **page)], **more)


async def names(stage: Any, capabilities: Json, *, modern: bool) -> list[str]:
    client = stage.connect()
    if modern:
        client.modern(capabilities=capabilities)
    else:
        await client.initialize(capabilities=capabilities)
    return [each["name"] for each in (await client.ask("tools/list"))["tools"]]


@requirement("apps:listed")
@pytest.mark.parametrize("modern", [False, True])
async def test_a_client_that_shows_pages_gets_the_tools_with_pages_in_its_list(modern: bool) -> None:
    async with proxy_over(charts(eras=MODERN if modern else LEGACY)) as stage:
        for capabilities, has in (({}, False), (SHOWS, True), ({}, False), (SHOWS, True)):
            assert ("up__draw_chart" in await names(stage, capabilities, modern=modern)) is has


@requirement("apps:listed")
async def test_tools_with_pages_keep_to_half_of_the_list_while_others_are_used() -> None:
    drawn = [
        tool(f"draw_{number}", "Draws a chart. " * 8, _meta={"ui": {"resourceUri": f"ui://up/{number}"}})
        for number in range(200)
    ]
    async with proxy_over(FakeUpstream("up", drawn), FakeUpstream("calc", ["add"]), list_tokens=1000) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        for _ in range(3):
            await stage.client.call_tool("call_tool_write", {"name": "calc__add", "arguments": {}})
        client = stage.connect()
        await client.initialize(capabilities=SHOWS)
        given = (await client.ask("tools/list"))["tools"]
        record = stage.store.sessions.exposures(stage.store.sessions.recent(1)[0].key)[0]
    for_models = [each["name"] for each in given if each["_meta"].get("ui", {}).get("visibility") != ["app"]]
    assert "calc__add" in for_models
    assert sum(name.startswith("up__draw") for name in for_models) > 1
    assert record.tokens <= 1000 and set(record.tools) == set(for_models)


@requirement("apps:found")
@pytest.mark.parametrize("relists", [True, False])
async def test_a_tool_with_a_page_that_a_search_finds_comes_onto_the_list(relists: bool) -> None:
    pages = [
        tool(
            f"draw_{number}", f"Draws a picture of a {what}. " * 30, _meta={"ui": {"resourceUri": f"ui://up/{number}"}}
        )
        for number, what in enumerate(["horse", "ship", "tower", "candle", "violin", "mountain", "bridge", "apple"])
    ]
    others = [tool(f"do_{number}", f"Does the work {number}. " * 8) for number in range(40)]
    other = FakeUpstream("b", [tool("zoom", "Zooms.", _meta={"ui": {"resourceUri": "ui://b/z"}})])
    async with proxy_over(FakeUpstream("up", [*pages, *others]), other, list_tokens=500, policy="frozen") as stage:
        client = stage.connect()
        await client.initialize(capabilities=SHOWS)
        before = [each["name"] for each in (await client.ask("tools/list"))["tools"]]
        wanted = next(f"up__{each['name']}" for each in pages if f"up__{each['name']}" not in before)
        about = next(each["description"] for each in pages if f"up__{each['name']}" == wanted)
        asked = client.post("tools/call", {"name": "discover_tools", "arguments": {"task": about[:40]}})
        await client.heard("notifications/tools/list_changed")
        if relists:
            after = {each["name"]: each for each in (await client.ask("tools/list"))["tools"]}
            assert after[wanted]["_meta"]["ui"]["resourceUri"].startswith("ui://up/")
        said = "\n".join(block["text"] for block in (await client.result(asked))["content"])
    assert (f"Your list has {wanted} by now: call by that name" in said) is relists


@requirement("apps:listed")
async def test_a_miss_of_a_tool_with_a_page_says_so() -> None:
    page = {"_meta": {"ui": {"resourceUri": "ui://up/chart"}}}
    huge = FakeUpstream("up", [tool("draw_chart", "Draws a chart. " * 400, **page)])
    async with proxy_over(huge, list_tokens=600, policy="frozen") as stage:
        for capabilities in ({}, SHOWS):
            client = stage.connect()
            await client.initialize(capabilities=capabilities)
            await client.list_tools()
            await client.call_tool("call_tool_write", {"name": "up__draw_chart", "arguments": {}})
        causes = [(miss.cause, miss.change) for miss in stage.misses()]
    assert causes == [
        ("rank", "pin up__draw_chart, or let it be used: the working set follows usage"),
        ("app", "pin up__draw_chart, or raise list_tokens over 600: its page is shown if the list has it"),
    ]


@requirement("apps:listed")
async def test_what_a_page_calls_is_no_miss_and_no_step_of_the_model() -> None:
    upstream = charts(2)
    async with proxy_over(upstream, list_tokens=450) as stage:
        await stage.client.initialize(capabilities=SHOWS)
        given = {each["name"]: each for each in (await stage.client.ask("tools/list"))["tools"]}
        assert given["up__do_0"]["_meta"]["ui"]["visibility"] == ["app"]
        for name in ("up__do_0", "do_0"):  # pages name a tool as its server does
            await stage.client.call_tool(name, {})
        (session,) = next(iter(stage.app.clients)).sessions()
        assert list(session.conversations.whole.history) == []
        assert stage.misses() == []
    assert [name for name, _ in upstream.calls] == ["do_0"] * 2


@requirement("apps:resources")
@pytest.mark.parametrize(
    "meta",
    [
        {"ui": {"resourceUri": "ui://x/page"}},
        {"ui/resourceUri": "ui://x/page"},
        {"openai/outputTemplate": "ui://x/page"},
    ],
)
@pytest.mark.parametrize("capabilities", [{"tools": {}, "resources": {}}, {"tools": {}}])
@pytest.mark.parametrize("is_in_result", [False, True])
async def test_a_page_can_be_read_wherever_its_server_names_it(
    meta: Json, capabilities: Json, is_in_result: bool
) -> None:
    definition = tool("show", **({} if is_in_result else {"_meta": meta}))
    upstream = FakeUpstream("up", [definition], capabilities=capabilities)
    result = {"content": [], "_meta": meta}
    upstream.results["show"] = result
    upstream.scripts["resources/read"] = lambda asked: asked.reply(
        {"contents": [{"uri": asked.params["uri"], "text": "page"}]}
    )
    async with proxy_over(FakeUpstream("other", ["a"], capabilities={"tools": {}, "resources": {}}), upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        assert await stage.client.call_tool("up__show", {}) == result
        read = await stage.client.ask("resources/read", {"uri": "ui://x/page"})
        greeting = await stage.connect().initialize()
    assert read["contents"][0]["text"] == "page"
    assert "resources" in greeting["capabilities"]
