"""What housekeeping survives."""

from __future__ import annotations

import asyncio
import platform
import sqlite3

import pytest
from fakes import FakeUpstream, SwiftLoop, failing_store, proxy_over

from foretool.server.housekeeping import trim_heap

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": SwiftLoop}


async def test_housekeeping_outlives_a_store_that_refuses_everything() -> None:
    store, connection = failing_store()
    async with proxy_over(FakeUpstream("calc", ["add"], entry={"pin": ["*"]}), store=store, epoch_s=0.5) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        connection.refuse = sqlite3.SQLITE_FULL
        stage.app.memory.save_state(stage.app.upstreams["calc"])
        await asyncio.sleep(5)
        connection.refuse = 0
        await stage.client.call_tool("calc__add", {})
        await asyncio.sleep(5)
        assert len(stage.calls()) == 1


def test_memory_is_given_back_where_the_c_library_can() -> None:
    assert trim_heap() is (platform.libc_ver()[0] == "glibc")
