"""Wiring: what is kept of upstreams between runs, how tokens get counted, what housekeeping survives."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time

import pytest
from fakes import BOTH, FakeApp, FakeUpstream, SwiftLoop, config_of, failing_store, proxy_over
from requirements import requirement
from stored_records import saved_upstreams

from foretool.server.app import App
from foretool.storage.records import UpstreamState

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": SwiftLoop}


async def test_an_upstream_is_remembered_with_what_it_said_of_itself() -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH, instructions="Be brief.", entry={"env": {"KEY": "s3cr3t-value"}})
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        (record,) = saved_upstreams(stage.store)
    assert (record.name, record.era, record.lacks, record.instructions) == ("calc", "legacy", None, "Be brief.")
    assert json.loads(record.capabilities) == {"tools": {"listChanged": True}}
    assert json.loads(record.server_info)["name"] == "calc"
    assert record.listed_at > 0


async def test_a_changed_command_forgets_what_was_known() -> None:
    store, _ = failing_store()
    async with proxy_over(FakeUpstream("calc", ["add"]), store=store) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
    other = FakeUpstream("calc", ["sub"], entry={"args": ["--other"]})
    async with proxy_over(other, store=store, policy="full") as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["calc__sub", "call_tool", "discover_tools"]


async def test_housekeeping_outlives_a_store_that_refuses_everything() -> None:
    store, connection = failing_store()
    async with proxy_over(FakeUpstream("calc", ["add"], entry={"pin": ["*"]}), store=store, epoch_s=0.5) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        connection.refuse = sqlite3.SQLITE_FULL
        stage.app.state_changed(stage.app.proxy.upstreams["calc"])
        await asyncio.sleep(5)
        connection.refuse = 0
        await stage.client.call_tool("calc__add", {})
        await asyncio.sleep(5)
        assert len(stage.calls()) == 1


def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        return process.pid


async def test_a_proxy_that_starts_forgets_those_that_were_killed_and_no_other() -> None:
    store, _ = failing_store()
    here, long_ago = time.time(), time.time() - 30 * 86_400
    for pid, began, name in ((dead_pid(), here, "killed"), (os.getppid(), here, "other"), (os.getpid(), long_ago, "a")):
        store.serving.save_state(UpstreamState(pid, began, name, "ready", began, "legacy", 1, 0, 0, "", ()))
    async with proxy_over(FakeUpstream("calc", ["add"]), store=store):
        await asyncio.sleep(5)
        assert {state.upstream for state in store.serving.states()} == {"other", "calc"}


@requirement("list:budget")
def test_tokens_are_counted_in_a_process_of_their_own_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretool.server.app.COUNTED_AT_ONCE", 2)
    store, _ = failing_store()
    app = FakeApp.__new__(FakeApp)
    app.fakes = {"calc": FakeUpstream("calc")}
    FakeApp.__init__(app, config_of(FakeUpstream("calc")), store)
    from foretool.server.protocol.jsonrpc import raw

    app.catalog.replace("calc", [raw({"name": f"t{n}", "inputSchema": {"type": "object"}}) for n in range(3)])
    asyncio.run(App._count_tokens(app))
    assert [each.id for each in app.catalog.find_uncounted()] == ["calc__t2"]
    asyncio.run(App._count_tokens(app))
    assert app.catalog.find_uncounted() == []
    assert [each.tokens for each in app.catalog.tools()] == [each.tokens for each in app.catalog.tools()][:1] * 3
    assert all(each.tokens for each in app.catalog.tools())
