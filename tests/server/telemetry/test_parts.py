"""The parts that begin spans answer as those that do not."""

from __future__ import annotations

import asyncio
import json

import pytest
from fakes import BOTH, FakeUpstream, proxy_over, text
from telemetry_fakes import watched

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


async def test_many_requests_of_one_list_end_their_spans() -> None:
    upstreams = [FakeUpstream(name, ["t"], capabilities={"tools": {}, "resources": {}}) for name in ("a", "b", "c")]
    for each in upstreams:
        each.scripts["resources/list"] = lambda asked: asked.reply({"resources": []})
    async with watched(*upstreams) as at:
        await at.stage.client.initialize()
        await at.stage.client.list_tools()
        await at.stage.client.ask("resources/list")
        await asyncio.sleep(0)
        ours, above = at.spans("CLIENT"), at.span("resources/list", "SERVER")
    assert {(each.attributes or {})["foretool.server"] for each in ours} == {"a", "b", "c"}
    assert {each.parent.span_id for each in ours if each.parent} == {above.context.span_id}
