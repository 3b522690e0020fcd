"""Metrics beside the durations of requests, which `test_tracing` has."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream
from requirements import requirement
from telemetry_fakes import watched

pytestmark = pytest.mark.anyio


async def test_sessions_and_lists_are_measured() -> None:
    async with watched(FakeUpstream("calc", ["add"])) as at:
        await at.stage.client.initialize()
        await at.stage.client.list_tools()
        at.stage.client._front.close()
        (session,) = at.points("mcp.server.session.duration")
        (tokens,) = at.points("foretool.list.tokens")
    assert session.count == tokens.count == 1
    assert tokens.sum > 0
    assert dict(tokens.attributes) == {"foretool.list.reason": "list"}


@requirement("telemetry:bounded")
async def test_hostile_names_add_no_series() -> None:
    async with watched(FakeUpstream("calc", ["add"])) as at:
        client = at.stage.client
        await client.initialize()
        for number in range(30):
            await client.reply(client.post("tools/call", {"name": f"evil{number}\x1b[2J" + "x" * 90}))
            await client.reply(client.post(f"evil/{number}", {}))
            await client.reply(client.post("tools/call", {"name": f"CALC__add{' ' * number}"}))
        tools = {point.attributes.get("gen_ai.tool.name") for point in at.points("mcp.server.operation.duration")}
        methods = {point.attributes["mcp.method.name"] for point in at.points("mcp.server.operation.duration")}
        names = {span.name for span in at.spans("SERVER")}
    assert tools <= {None, "_other", "calc__add"}
    assert methods == {"initialize", "tools/call", "_OTHER"}
    assert names <= {"initialize", "tools/call", "tools/call calc__add", "_OTHER"}
