"""What is remembered of upstreams, and whose states are forgotten."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time

import pytest
from fakes import BOTH, FakeUpstream, failing_store, proxy_over
from stored_records import saved_upstreams

from foretool.storage.records import UpstreamState

pytestmark = pytest.mark.anyio


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
