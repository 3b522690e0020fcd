"""Each client is told once what waits for the user."""

from __future__ import annotations

import asyncio

import pytest
from fakes import BOTH, FakeUpstream, proxy_over, tool
from requirements import requirement

from foretool.server.protocol import versions

pytestmark = pytest.mark.anyio

MESSAGE = "notifications/message"


@requirement("trust:pin:said")
async def test_a_batch_of_changes_is_one_log_message_to_each_client_that_wants_warnings() -> None:
    upstream = FakeUpstream("calc", ["add", "sub"])
    async with proxy_over(upstream, FakeUpstream("other", ["x"])) as stage:
        quiet = stage.connect()
        for client in (stage.client, quiet):
            await client.initialize()
            await client.list_tools()
        await quiet.ask("logging/setLevel", {"level": "error"})
        upstream.change(tool("add", "changed"), tool("sub", "changed"), tool("mul"))
        said = await stage.client.heard(MESSAGE)
        assert said["level"] == "warning"
        assert said["data"].startswith("calc: 2 tools changed, 1 tool new; nobody has approved this")
        assert "foretool review calc" in said["data"]
        await asyncio.sleep(10)
        late = stage.connect()
        await late.initialize()
        await late.heard(MESSAGE)
    assert (stage.client.count(MESSAGE), quiet.count(MESSAGE), late.count(MESSAGE)) == (1, 0, 1)


@requirement("trust:pin:said")
async def test_a_modern_client_is_told_with_its_list_if_it_asks_for_log_messages() -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH)
    async with proxy_over(upstream) as stage:
        client = stage.client.modern(**{versions.META_LOG_LEVEL: "info"})
        await client.list_tools()
        assert client.count(MESSAGE) == 0
        upstream.change(tool("add", "changed"))
        await upstream.asked("tools/list", 2)
        await asyncio.sleep(1)
        await client.list_tools()
        await client.list_tools()
        silent = stage.connect().modern()
        await silent.list_tools()
    assert (client.count(MESSAGE), silent.count(MESSAGE)) == (1, 0)


async def test_a_client_is_not_told_of_servers_that_its_profile_leaves_out() -> None:
    upstream = FakeUpstream("calc", ["add"])
    async with proxy_over(upstream, profiles={"less": {"servers": ["x"]}}) as stage:
        client = stage.connect("less")
        await stage.client.initialize()
        await stage.client.list_tools()
        await client.initialize()
        upstream.change(tool("add", "changed"))
        await stage.client.heard(MESSAGE)
        await asyncio.sleep(5)
    assert client.count(MESSAGE) == 0
