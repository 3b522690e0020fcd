"""The parts that begin spans answer as those that do not."""

from __future__ import annotations

import asyncio
import json

import pytest
from fakes import BOTH, FakeUpstream, proxy_over, text, tool
from telemetry_fakes import watched

from foretool.server.upstreams import server_list

pytestmark = pytest.mark.anyio


async def said(stage) -> list[object]:
    """What a client is told in a conversation."""
    client = stage.client
    await client.initialize()
    posts = [
        client.post("tools/list"),
        client.post("tools/call", {"name": "calc__add", "arguments": {"a": 1}}),
        client.post("tools/call", {"name": "calc__fail"}),
        client.post("tools/call", {"name": "no_such"}),
        client.post("tools/call", {}),
        client.post("resources/list"),
        client.post("nonsense"),
    ]
    return [(await client.reply(each)).get("result", "error") for each in posts]


@pytest.mark.parametrize("eras", [("legacy",), BOTH], ids=str)
async def test_answers_are_the_same(eras) -> None:
    def upstream() -> FakeUpstream:
        return FakeUpstream("calc", ["add", "fail"], eras=eras, results={"fail": text("no", isError=True)})

    async with proxy_over(upstream()) as stage:
        expected = await said(stage)
    async with watched(upstream()) as at:
        assert json.dumps(await said(at.stage)) == json.dumps(expected)
        assert len(at.spans("SERVER")) == 8


async def test_a_list_of_many_servers_has_a_trace_of_its_own_for_each() -> None:
    upstreams = [FakeUpstream(name, ["t"], capabilities={"tools": {}, "resources": {}}) for name in ("a", "b", "c")]
    for each in upstreams:
        each.scripts["resources/list"] = lambda asked: asked.reply({"resources": []})
    async with watched(*upstreams) as at:
        await at.stage.client.initialize()
        await at.stage.client.list_tools()
        await at.stage.client.ask("resources/list")
        await asyncio.sleep(0)
        asked = [each for each in at.spans("CLIENT") if each.name == "resources/list"]
    assert {(each.attributes or {})["foretool.server"] for each in asked} == {"a", "b", "c"}
    assert {each.parent for each in asked} == {None}, "it is asked once for all clients"


@pytest.mark.parametrize(("eras", "first"), [(("legacy",), "initialize"), (("modern",), "server/discover")], ids=str)
async def test_what_foretool_asks_a_server_by_itself_is_a_trace_of_its_own(eras, first: str) -> None:
    calc = FakeUpstream("calc", ["add"], eras=eras)
    async with watched(calc) as at:
        await at.stage.client.initialize()
        await at.stage.client.list_tools()
        count = calc.count("tools/list")
        calc.change(tool("sub"))
        await calc.asked("tools/list", count + 1)
        await asyncio.sleep(0)
        own = [each for each in at.spans("CLIENT") if each.parent is None]
        durations = at.points("mcp.client.operation.duration")
    names = [each.name for each in own]
    assert names[-3:] == [first, "tools/list", "tools/list"]
    assert len({each.context.trace_id for each in own}) == len(own)
    attributes = dict(own[-2].attributes or {})
    assert attributes.pop("jsonrpc.request.id").isdecimal()
    version = "2025-11-25" if eras == ("legacy",) else "2026-07-28"
    assert attributes == {
        "mcp.method.name": "tools/list", "mcp.protocol.version": version, "network.transport": "pipe",
        "foretool.server": "calc",
    }  # fmt: skip
    (asked, *_) = (each for each in calc.requests if each.method == "tools/list")
    assert asked.meta["traceparent"].split("-")[2] == f"{own[-2].context.span_id:016x}"
    assert {first, "tools/list"} <= {(each.attributes or {})["mcp.method.name"] for each in durations}


async def test_a_handshake_that_fails_ends_its_span_with_the_reason() -> None:
    calc = FakeUpstream("calc", ["add"])
    calc.scripts["initialize"] = lambda asked: asked.fail(-32603, "no \x1b[31m licence \u202e" + "x" * 9000)
    async with watched(calc) as at:
        await at.stage.client.initialize()
        await calc.asked("initialize")
        await asyncio.sleep(0.1)
        spans = [each for each in at.spans("CLIENT") if each.name == "initialize"]
    attributes = dict(spans[0].attributes or {})
    assert (attributes["error.type"], attributes["rpc.response.status_code"]) == ("-32603", "-32603")
    assert spans[0].status.status_code.name == "ERROR" and not spans[0].status.description


async def test_a_list_that_never_comes_ends_its_span_when_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_list, "LIST_S", 0.05)
    calc = FakeUpstream("calc", ["add"])
    calc.scripts["tools/list"] = lambda asked: None
    async with watched(calc) as at:
        await at.stage.client.initialize()
        await calc.asked("tools/list")
        await asyncio.sleep(0.3)
        (span, *_) = (each for each in at.spans("CLIENT") if each.name == "tools/list")
    assert (span.attributes or {})["error.type"] == "cancelled"
