"""A page of one server (MCP Apps) wants what another one has: its tools, our tools, its pages, its data.

A host lets a page call each tool of the same connection whose visibility holds `app`, the default, and it cannot tell
the servers behind us apart. `callable_by_pages` is what such a host would let any page call.
"""

from __future__ import annotations

from typing import Any

import pytest
from fakes import LEGACY, MODERN, Failed, FakeClient, FakeUpstream, Json, proxy_over, said, tool
from requirements import requirement

from foretool.server.protocol import jsonrpc, versions

pytestmark = pytest.mark.anyio

SHOWS: Json = {"extensions": {versions.UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}}
"""What a client declares that shows pages."""
OWN = {"call_tool", "call_tool_write", "call_tools", "discover_tools"}


def paged(server: str, **ui: Any) -> Json:
    return {"_meta": {"ui": {"resourceUri": f"ui://{server}/page", **ui}}}


def bank(**meta: Any) -> FakeUpstream:
    """A server without pages, which must not be called by any."""
    return FakeUpstream("bank", [tool("transfer", "Transfers money", **meta), tool("balance", "Says the balance")])


def evil() -> FakeUpstream:
    """A server with a page, a tool that its page alone may call, and one that both may call."""
    return FakeUpstream(
        "evil",
        [
            tool("show", "Shows the weather", **paged("evil")),
            tool("refresh", "Refreshes the secret page", **paged("evil", visibility=["app"])),
            tool("zoom", "Zooms"),
            tool("plain", "Forecasts", _meta={"ui": {"visibility": ["model"]}}),
        ],
    )


async def listed(client: FakeClient, capabilities: Json, *, modern: bool = False) -> dict[str, Json]:
    """The definitions that a client is given, by name."""
    if modern:
        client.modern(capabilities=capabilities)
    else:
        await client.initialize(capabilities=capabilities)
    return {each["name"]: each for each in (await client.ask("tools/list"))["tools"]}


def callable_by_pages(tools: dict[str, Json]) -> set[str]:
    """The tools that a host lets any page call, by the rules of MCP Apps and of ChatGPT."""

    def lets(meta: Json) -> bool:
        return "app" in meta.get("ui", {}).get("visibility", ["model", "app"]) or bool(
            meta.get("openai/widgetAccessible")
        )

    return {name for name, each in tools.items() if lets(each.get("_meta", {}))}


def seen_by_models(tools: dict[str, Json]) -> set[str]:
    """The tools that such a host offers to a model."""
    return {
        name
        for name, each in tools.items()
        if "model" in each.get("_meta", {}).get("ui", {}).get("visibility", ["model", "app"])
    }


@requirement("trust:apps:calls")
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("policy", ["frozen", "growing", "full"])
async def test_a_page_can_call_no_tool_of_another_server_and_none_of_ours(policy: str, modern: bool) -> None:
    eras = MODERN if modern else LEGACY
    servers = bank(_meta={"ui": {"visibility": ["model", "app"]}, "openai/widgetAccessible": True}), evil()
    for server in servers:
        server.eras = eras
    async with proxy_over(*servers, policy=policy, pin=["bank__*", "evil__show"], call_tools=True) as stage:
        shown = await listed(stage.client, SHOWS, modern=modern)
        told = await listed(stage.connect(), {}, modern=modern)
    assert callable_by_pages(shown) == {"evil__show", "evil__refresh", "evil__zoom"}
    assert {"bank__transfer", "bank__balance", "evil__show", *OWN} <= seen_by_models(shown)
    assert not seen_by_models(shown) & {"evil__refresh"}
    # A host that shows pages without a word of it finds the tools of others closed as well.
    assert callable_by_pages(told) <= {"evil__show", "evil__zoom"}
    assert "evil__refresh" not in told


@requirement("trust:apps:calls")
async def test_where_several_servers_have_pages_none_of_them_calls_anything() -> None:
    bank_with_page = bank(**paged("bank"))
    bank_with_page.tools = [*bank_with_page.tools, tool("sign", "Signs", **paged("bank", visibility=["app"]))]
    profiles = {"money": {"servers": ["bank"]}}
    async with proxy_over(bank_with_page, evil(), policy="full", profiles=profiles) as stage:
        both = await listed(stage.client, SHOWS)
        alone = await listed(stage.connect("money"), SHOWS)
        refused = await stage.client.reply(stage.client.post("tools/call", {"name": "bank__sign", "arguments": {}}))
        misses = stage.misses()
    assert callable_by_pages(both) == set()
    assert both["bank__transfer"]["_meta"]["ui"] == {"resourceUri": "ui://bank/page", "visibility": ["model"]}
    assert callable_by_pages(alone) == {"bank__transfer", "bank__balance", "bank__sign"}
    assert refused["error"]["code"] == jsonrpc.INVALID_PARAMS and bank_with_page.calls == []
    assert [(miss.cause, miss.change) for miss in misses] == [
        ("denied", "give server 'bank' a profile without 'evil'")
    ]  # fmt: skip


@requirement("trust:apps:calls")
@pytest.mark.parametrize(
    "spelled", [b'{"\\u0075i":{"resourceUri":"ui://evil/page"}}', b'{"ui/resourceUri":"UI://evil"}']
)
async def test_a_page_that_is_named_in_an_odd_way_counts_as_one(spelled: bytes) -> None:
    odd = FakeUpstream("evil")
    written = b'{"tools":[{"name":"show","inputSchema":{"type":"object"},"\\u005fmeta":%s}]}' % spelled
    odd.scripts["tools/list"] = lambda asked: asked.reply(written)
    async with proxy_over(bank(**paged("bank")), odd, policy="full") as stage:
        assert callable_by_pages(await listed(stage.client, SHOWS)) == set()


@requirement("trust:apps:calls")
async def test_what_a_list_gains_is_closed_to_pages_too_and_named_once() -> None:
    upstream = evil()
    async with proxy_over(bank(), upstream, policy="growing") as stage:
        client = stage.client
        before = await listed(client, SHOWS)
        assert "evil__zoom" in before and "evil__zoom" not in seen_by_models(before)
        owner = next(iter(stage.app.clients))
        assert owner.session is not None
        found = [each.id for each in stage.app.catalog.tools() if each.name in ("transfer", "zoom")]
        assert owner.tools.grow(owner.session.list, found)
        names = [each["name"] for each in (await client.ask("tools/list"))["tools"]]
        after = {each["name"]: each for each in (await client.ask("tools/list"))["tools"]}
    assert len(names) == len(set(names))
    assert {"bank__transfer", "evil__zoom"} <= seen_by_models(after)
    assert callable_by_pages(after) == {"evil__show", "evil__refresh", "evil__zoom"}


@requirement("trust:apps:alone")
@pytest.mark.parametrize("hidden", [{"ui": {"visibility": ["app"]}}, {"openai/visibility": "private"}])
async def test_what_a_server_offers_to_its_page_alone_is_neither_found_nor_run_by_a_model(hidden: Json) -> None:
    upstream = FakeUpstream("evil", [tool("show", "Shows the weather"), tool("refresh", "Refreshes it", _meta=hidden)])
    async with proxy_over(upstream, policy="full") as stage:
        client = stage.client
        assert "evil__refresh" not in await listed(client, {})
        assert "1 tool on 1 server" in str(await client.ask("tools/list"))
        for search in ({"task": "refresh it"}, {"names": ["evil__refresh"]}, {"task": "evil__refresh", "limit": 50}):
            found = said(await client.call_tool("discover_tools", search))
            assert "1. evil__refresh" not in found and "Refreshes" not in found
        for bridge in ("call_tool", "call_tool_write"):
            assert (await client.call_tool(bridge, {"name": "evil__refresh"}))["isError"] is True
        with pytest.raises(Failed):
            await client.call_tool("evil__refresh", {})
        with pytest.raises(Failed) as unknown:
            await client.call_tool("evil__refreshes", {})
        # A client that shows pages has a page that may call it, and still no model that may.
        other = stage.connect()
        await other.initialize(capabilities=SHOWS)
        assert (await other.call_tool("call_tool_write", {"name": "evil__refresh"}))["isError"] is True
    assert "evil__refresh" not in str(unknown.value).removeprefix("Unknown tool: evil__refreshes")
    assert upstream.calls == []


def with_pages(server: str, *lists: str, names: str = "") -> FakeUpstream:
    """A server that lists these resources, whose tool names a page."""
    meta = {"_meta": {"ui": {"resourceUri": names}}} if names else {}
    upstream = FakeUpstream(server, [tool("show", **meta)], capabilities={"tools": {}, "resources": {}})
    resources = [{"uri": uri, "name": server} for uri in lists]
    upstream.scripts = {
        "resources/list": lambda asked: asked.reply({"resources": resources}),
        "resources/templates/list": lambda asked: asked.reply({"resourceTemplates": []}),
        "resources/read": lambda asked: asked.reply({"contents": [{"uri": asked.params["uri"], "text": server}]}),
    }
    return upstream


@requirement("trust:apps:pages")
@pytest.mark.parametrize("uri", ["ui://bank/page", "ui://widget/page"])
@pytest.mark.parametrize("order", [("bank", "evil"), ("evil", "bank")])
async def test_no_page_is_shown_in_place_of_another_servers(uri: str, order: tuple[str, str]) -> None:
    """Whoever the page is read from, no tool of the other server is shown with it."""
    servers = {name: with_pages(name, uri, names=uri) for name in order}
    async with proxy_over(*(servers[name] for name in order), policy="full") as stage:
        tools = await listed(stage.client, SHOWS)
        read = await stage.client.ask("resources/read", {"uri": uri})
    owner = read["contents"][0]["text"]
    naming = [name for name in order if tools[f"{name}__show"]["_meta"]["ui"].get("resourceUri") == uri]
    assert naming == [owner] == ["bank" if "bank" in uri else order[0]]


@requirement("trust:apps:pages")
@pytest.mark.parametrize("uri", ["ui://bank/page", "ui://widget/page"])
async def test_a_server_that_only_lists_the_page_of_another_is_not_asked_for_it(uri: str) -> None:
    evil = with_pages("evil", uri)
    async with proxy_over(evil, with_pages("bank", names=uri), policy="full") as stage:
        await listed(stage.client, SHOWS)
        await stage.client.ask("resources/list")
        read = await stage.client.reply(stage.client.post("resources/read", {"uri": uri}))
    assert "resources/read" not in [asked.method for asked in evil.requests]
    assert ("result" in read) is ("bank" in uri)
