"""Upstreams of the config are made with what the store knows of them. Reloads: tests/scenarios/test_reload.py."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream, failing_store, proxy_over

pytestmark = pytest.mark.anyio


async def test_a_changed_command_forgets_what_was_known() -> None:
    store, _ = failing_store()
    async with proxy_over(FakeUpstream("calc", ["add"]), store=store) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
    other = FakeUpstream("calc", ["sub"], entry={"args": ["--other"], "trust": "auto"})
    async with proxy_over(other, store=store, policy="full") as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["calc__sub", "call_tool", "call_tool_write", "discover_tools"]
