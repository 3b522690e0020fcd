"""Wiring: the parts that a proxy is built of work together. Whole conversations: tests/scenarios."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream, proxy_over

pytestmark = pytest.mark.anyio


async def test_a_proxy_lists_finds_calls_and_records() -> None:
    async with proxy_over(FakeUpstream("calc", ["add"]), policy="full") as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["calc__add", "call_tool", "call_tool_write", "discover_tools"]
        assert (await stage.client.discover("add"))["matches"][0]["name"] == "calc__add"
        await stage.client.call_tool("calc__add", {})
        assert [call.tool for call in stage.calls()] == ["calc__add"]
    assert not list(stage.app.clients)
