"""Spans of requests, over the real proxy with spans that stay in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import BOTH, MODERN, FakeUpstream, said, text
from requirements import requirement
from telemetry_fakes import watched

from foretool.fleet.telemetry.tracing import (
    MOST_TEXT,
    MOST_TOOLS,
    ToolNames,
    name_error,
    name_method,
    shorten,
)

pytestmark = pytest.mark.anyio

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = int("4bf92f3577b34da6a3ce929d0e0e4736", 16)
SPAN = int("00f067aa0ba902b7", 16)


def sent(upstream: FakeUpstream, method: str = "tools/call") -> Any:
    """The `_meta` of the last request of this method."""
    return [each for each in upstream.requests if each.method == method][-1].meta


@requirement("telemetry:trace")
@pytest.mark.parametrize("eras", [BOTH, MODERN], ids=str)
async def test_a_call_is_one_trace_from_the_client_to_the_upstream(eras: Any) -> None:
    calc = FakeUpstream("calc", ["add"], eras=eras)
    async with watched(calc) as at:
        client = at.stage.client
        await client.initialize()
        meta = {"traceparent": PARENT, "tracestate": "a=1,b=2", "baggage": "user=ann"}
        await client.call_tool("calc__add", {"a": 1}, meta=meta)
        server, ours = at.span("tools/call calc__add"), at.span("tools/call add")
    assert (server.kind.name, ours.kind.name) == ("SERVER", "CLIENT")
    assert server.context.trace_id == ours.context.trace_id == TRACE
    assert server.parent is not None and server.parent.span_id == SPAN and server.parent.is_remote
    assert ours.parent is not None and ours.parent.span_id == server.context.span_id
    reached = sent(calc)
    assert reached["traceparent"] == f"00-{TRACE:032x}-{ours.context.span_id:016x}-01"
    assert (reached["tracestate"], reached["baggage"]) == ("a=1,b=2", "user=ann")


async def test_spans_have_the_attributes_of_the_conventions() -> None:
    calc = FakeUpstream("calc", ["add"])
    async with watched(calc) as at:
        client = at.stage.client
        await client.initialize("claude-code", "2.0")
        await client.list_tools()
        await client.call_tool("calc__add", {"a": 1}, id="x-1")
        key = at.stage.calls()[0].session
        server = dict(at.span("tools/call calc__add").attributes or {})
        ours = dict(at.span("tools/call add").attributes or {})
        listed = at.span("tools/list", "SERVER")
    assert server == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25",
        "mcp.session.id": key,
        "jsonrpc.request.id": "x-1",
        "network.transport": "pipe",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "calc__add",
        "foretool.client.name": "claude-code",
        "foretool.tool": "calc__add",
        "foretool.server": "calc",
        "foretool.via": "name",
        "foretool.hidden": True,
    }
    assert ours.pop("jsonrpc.request.id").isdecimal()
    assert ours == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25",
        "network.transport": "pipe",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "foretool.server": "calc",
    }
    (event,) = listed.events
    assert event.name == "foretool.list"
    assert dict(event.attributes or {})["foretool.list.tools"] == 3


async def test_a_miss_is_an_event_of_the_request_that_showed_it() -> None:
    async with watched(FakeUpstream("calc", ["add"])) as at:
        await at.stage.client.initialize()
        await at.stage.client.list_tools()
        await at.stage.client.call_tool("calc__add", {})
        (miss,) = at.stage.misses()
        (event,) = at.span("tools/call calc__add").events
        (point,) = at.points("foretool.misses")
    assert event.name == "foretool.miss"
    assert dict(event.attributes or {}) == {
        "foretool.tool": "calc__add",
        "foretool.miss.cause": miss.cause,
        "foretool.miss.noticed": "call",
        "foretool.miss.recovered": miss.recovered,
    }
    assert (point.value, dict(point.attributes)) == (1, {"foretool.miss.cause": miss.cause})


async def test_a_search_is_a_span_below_its_call() -> None:
    async with watched(FakeUpstream("calc", ["add"])) as at:
        await at.stage.client.initialize()
        await at.stage.client.discover("add two numbers")
        search, call = at.span("retrieval foretool"), at.span("tools/call discover_tools")
        (point,) = at.points("foretool.searches")
    assert search.parent is not None and search.parent.span_id == call.context.span_id
    assert dict(search.attributes or {}) == {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": "foretool",
        "foretool.search.level": point.attributes["foretool.search.level"],
        "foretool.search.matches": 1,
        "foretool.tokens": (search.attributes or {})["foretool.tokens"],
    }


async def test_a_call_behind_the_bridge_names_both_tools() -> None:
    async with watched(FakeUpstream("calc", ["add"])) as at:
        await at.stage.client.initialize()
        await at.stage.client.call_tool("call_tool_write", {"name": "calc__add", "arguments": {}})
        (span,) = [each for each in at.spans("SERVER") if (each.attributes or {}).get("gen_ai.tool.name")]
    assert (span.attributes or {})["foretool.tool"] == "calc__add"
    assert (span.attributes or {})["foretool.via"] == "bridge"


@pytest.mark.parametrize("way", ["error", "tool_error", "lost"])
async def test_failures_have_an_error_type(way: str) -> None:
    calc = FakeUpstream("calc", ["add"])
    calc.scripts["add"] = {
        "error": lambda asked: asked.fail(-32002, "no room for 4711"),
        "tool_error": lambda asked: asked.reply(text("no", isError=True)),
        "lost": lambda asked: calc.die(),
    }[way]
    async with watched(calc) as at:
        await at.stage.client.initialize()
        await at.stage.client.reply(at.stage.client.post("tools/call", {"name": "calc__add"}))
        server, ours = at.span("tools/call calc__add"), at.span("tools/call add")
        (of_server,) = [each for each in at.points("mcp.server.operation.duration") if "error.type" in each.attributes]
    assert (ours.attributes or {})["error.type"] == {"error": "-32002"}.get(way, way)
    # To the client a lost server is an answer with `isError`, or an error of ours.
    expected = {"error": "-32002", "tool_error": "tool_error"}.get(way, (server.attributes or {})["error.type"])
    assert (server.attributes or {})["error.type"] == of_server.attributes["error.type"] == expected
    assert server.status.status_code.name == ours.status.status_code.name == "ERROR"
    assert "4711" not in str(server.status.description) + str(ours.status.description)
    if way == "error":
        assert (ours.attributes or {})["rpc.response.status_code"] == "-32002"


@requirement("telemetry:bounded")
async def test_codes_of_a_hostile_server_add_no_series() -> None:
    calc = FakeUpstream("calc", ["add"])
    codes = iter(range(1, 100))
    calc.scripts["add"] = lambda asked: asked.fail(next(codes), "no")
    async with watched(calc) as at:
        await at.stage.client.initialize()
        for _ in range(20):
            await at.stage.client.reply(at.stage.client.post("tools/call", {"name": "calc__add"}))
        (point,) = at.points("mcp.client.operation.duration", "tools/call")
        spans = {(each.attributes or {})["error.type"] for each in at.spans("CLIENT") if each.parent is not None}
    assert (point.attributes["error.type"], point.attributes["rpc.response.status_code"]) == ("_OTHER", "_OTHER")
    assert len(spans) == 20


async def test_the_query_of_a_resource_stays_here() -> None:
    docs = FakeUpstream("docs", ["t"], capabilities={"tools": {}, "resources": {}})
    listed = {"resources": [{"uri": "https://a.example/x?key=4711#y", "name": "x"}]}
    docs.scripts["resources/list"] = lambda asked: asked.reply(listed)
    docs.scripts["resources/read"] = lambda asked: asked.reply({"contents": []})
    async with watched(docs) as at:
        await at.stage.client.initialize()
        await at.stage.client.list_tools()
        await at.stage.client.ask("resources/list")
        await at.stage.client.ask("resources/read", {"uri": "https://a.example/x?key=4711#y"})
        read = [each for each in at.spans() if each.name == "resources/read"]
    assert {(each.attributes or {})["mcp.resource.uri"] for each in read} == {"https://a.example/x"}
    assert {each.kind.name for each in read} == {"SERVER", "CLIENT"}


async def test_what_a_client_takes_back_ends_both_spans_without_an_error() -> None:
    calc = FakeUpstream("calc", ["add"])
    calc.hold("add")
    async with watched(calc) as at:
        client = at.stage.client
        await client.initialize()
        id = client.post("tools/call", {"name": "calc__add"})
        await calc.called("add")
        client.notify("notifications/cancelled", {"requestId": id})
        server, ours = at.span("tools/call calc__add"), at.span("tools/call add")
    assert (server.attributes or {})["error.type"] == (ours.attributes or {})["error.type"] == "cancelled"
    assert server.status.status_code.name == "UNSET"
    assert (server.attributes or {})["foretool.tool"] == "calc__add"


@requirement("telemetry:content")
async def test_contents_leave_only_where_the_config_says_so() -> None:
    secret = "4711-0815"
    calc = FakeUpstream("calc", ["add"], results={"add": text(f"the result {secret}")})
    async with watched(calc) as at:
        await at.stage.client.initialize()
        await at.stage.client.call_tool("calc__add", {"pin": secret})
        await at.stage.client.discover(f"find {secret}")
        assert secret not in "".join(each.to_json() for each in at.spans())
    async with watched(calc, content=lambda text: text.replace(secret, "***")) as at:
        await at.stage.client.initialize()
        await at.stage.client.call_tool("calc__add", {"pin": secret})
        await at.stage.client.call_tool("calc__add", {"pin": "x" * 8192})
        await at.stage.client.discover(f"find {secret}")
        first, second = [dict(each.attributes or {}) for each in at.spans("CLIENT") if each.name == "tools/call add"]
        search = dict(at.span("retrieval foretool").attributes or {})
    assert json.loads(first["gen_ai.tool.call.arguments"]) == {"pin": "***"}
    assert json.loads(first["gen_ai.tool.call.result"])["content"][0]["text"] == "the result ***"
    assert "gen_ai.tool.call.arguments" not in second
    assert search["gen_ai.retrieval.query.text"] == "find ***"


async def test_durations_are_measured_on_both_sides() -> None:
    calc = FakeUpstream("calc", ["add"])
    async with watched(calc, address=("mcp.example.org", 443)) as at:
        await at.stage.client.initialize()
        await at.stage.client.call_tool("calc__add", {})
        (server,) = [
            each
            for each in at.points("mcp.server.operation.duration")
            if each.attributes["mcp.method.name"] == "tools/call"
        ]
        (ours,) = at.points("mcp.client.operation.duration", "tools/call")
    assert dict(server.attributes) == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "calc__add",
        "gen_ai.operation.name": "execute_tool",
        "mcp.protocol.version": "2025-11-25",
        "network.transport": "pipe",
    }
    assert dict(ours.attributes) == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "add",
        "gen_ai.operation.name": "execute_tool",
        "mcp.protocol.version": "2025-11-25",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "server.address": "mcp.example.org",
        "server.port": 443,
        "foretool.server": "calc",
    }
    assert (server.count, ours.count) == (1, 1)
    assert server.explicit_bounds[:2] == (0.01, 0.02)


async def test_what_is_not_sampled_goes_on_as_such() -> None:
    calc = FakeUpstream("calc", ["add"])
    async with watched(calc) as at:
        await at.stage.client.initialize()
        await at.stage.client.call_tool("calc__add", {}, meta={"traceparent": PARENT[:-2] + "00"})
        assert [each.name for each in at.spans() if each.name.startswith("tools/call")] == []
    assert sent(calc)["traceparent"].startswith(f"00-{TRACE:032x}-")
    assert sent(calc)["traceparent"].endswith("-00")


async def test_two_calls_at_once_keep_their_own_traces() -> None:
    calc = FakeUpstream("calc", ["add", "multiply"])
    calc.hold("add")
    async with watched(calc) as at:
        client = at.stage.client
        await client.initialize()
        other = PARENT.replace("4bf9", "aaaa")
        first = client.post("tools/call", {"name": "calc__add"}, meta={"traceparent": PARENT})
        await calc.called("add")
        result = await client.call_tool("calc__multiply", {}, meta={"traceparent": other})
        assert said(result) == "multiply"
        (await calc.called("add")).reply(text("late"))
        await client.reply(first)
        by_name = {each.name: each for each in at.spans()}
    assert by_name["tools/call calc__add"].context.trace_id == by_name["tools/call add"].context.trace_id == TRACE
    assert by_name["tools/call multiply"].context.trace_id == int(other.split("-")[1], 16)
    assert (by_name["tools/call calc__multiply"].attributes or {})["foretool.tool"] == "calc__multiply"
    assert (by_name["tools/call calc__add"].attributes or {})["foretool.tool"] == "calc__add"


def test_a_text_becomes_one_short_line_of_visible_characters() -> None:
    assert shorten("add\x1b[2J\nrm\u202e") == "add [2J | rm "
    assert len(shorten("x" * 10**6)) == MOST_TEXT
    assert shorten("half \ud800 of a pair") == "half ? of a pair"


def test_methods_that_mcp_does_not_have_share_a_name() -> None:
    assert [name_method("tools/call"), name_method("evil/" + "x" * 1000)] == ["tools/call", "_OTHER"]


def test_codes_that_the_protocol_does_not_have_share_a_name() -> None:
    assert [name_error(kind) for kind in ("tool_error", "-32602", "-31999", "4711")] == [
        "tool_error", "-32602", "_OTHER", "_OTHER",
    ]  # fmt: skip


@requirement("telemetry:bounded")
def test_only_tools_that_exist_get_a_name_and_only_so_many() -> None:
    names = ToolNames(lambda name: name.startswith("tool"))
    assert names.label("nonsense") == "_other"
    labels = {names.label(f"tool{number}") for number in range(10 * MOST_TOOLS)}
    assert len(labels) == MOST_TOOLS + 1
    assert names.label("tool0") == "tool0"
    assert ToolNames(lambda _: True).label("x" * (MOST_TEXT + 1)) == "_other"
