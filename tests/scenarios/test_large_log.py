"""A conversation and two minutes of upkeep ask no more of the store on the event loop when its log is longer."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import anyio
import pytest
from counted_steps import Counted, count_steps
from fakes import Failed, FakeUpstream, proxy_over
from stored_records import connection_of

from bench.storage.ledger import NOUNS, TOOLS, VERBS, add_sums, copy_sessions, write_ledger
from foretool.server.config.loader import load
from foretool.storage.opening import open_store
from foretool.storage.records import MissFilter, Prompt

pytestmark = pytest.mark.anyio

CALLS: Final = 3000
TIMES: Final = 6
SERVERS: Final = 4
UPKEEP_S: Final = 130.0
"""Long enough for whatever comes once a minute; the clock jumps."""


def upstreams() -> list[FakeUpstream]:
    """Servers whose tools are on record."""
    names = [f"{VERBS[at % len(VERBS)]}_{NOUNS[at * 7 % len(NOUNS)]}_{at}" for at in range(TOOLS)]
    tools = [
        {"name": name, "description": f"Lets you {name.replace('_', ' the ')}.", "inputSchema": {"type": "object"}}
        for name in names
    ]
    return [FakeUpstream(f"server{at:02}", tools) for at in range(SERVERS)]


def make_log(folder: Path, times: int) -> Path:
    """Write a log so many times as long, and say up to where a proxy has counted it."""
    config = load(write_ledger(folder, CALLS, 300, 20.0, time.time() - 3600))
    assert isinstance(config.storage, Path)
    copy_sessions(config.storage, times)
    add_sums(config.path)
    return config.storage


async def converse(path: Path) -> tuple[Counted, int]:
    """What a client does in its first minutes; returns what the store was asked on the loop, and how many tools the
    first list had."""
    with open_store(path) as store:
        connection = connection_of(store)
        with count_steps(connection) as counted:
            async with proxy_over(*upstreams(), store=store, policy="growing", list_tokens=1500) as stage:
                client = stage.client
                await client.initialize()
                listed = [name for name in await client.list_tools() if "__" in name]
                await client.call_tool(listed[0], {})
                await client.call_tool("call_tool_write", {"name": "server03__read_file_10", "arguments": {}})
                await client.discover("delete the order of a table")
                store.tasks.add_prompt(Prompt(stage.app.recorder.now(), "read the page of an event", "s"))
                await client.call_tool("server02__write_image_11", {})
                with pytest.raises(Failed, match="no_such_tool"):
                    await client.call_tool("server01__no_such_tool", {})
                await anyio.sleep(UPKEEP_S)
                stage.app.lists.forget()  # a new epoch
                second = stage.connect()
                await second.initialize()
                await second.list_tools()
                await second.discover("move the image")
        missed = [each.tool for each in store.calls.find_misses(MissFilter(), 3)]
        assert "server03__read_file_10" in missed
        return counted, len(listed)


@pytest.mark.slow
async def test_what_the_loop_asks_of_the_store_takes_no_more_steps_with_a_longer_log(tmp_path: Path) -> None:
    short, long = (make_log(tmp_path / name, times) for name, times in (("short", 1), ("long", TIMES)))
    with closing(sqlite3.connect(long)) as file:
        assert file.execute("SELECT count(*) FROM calls").fetchone() == (CALLS * TIMES,)
    small, tools = await converse(short)
    large, again = await converse(long)
    assert tools > 3 and again > 3
    assert len(small.steps) > 40, "the proxy has asked little"
    assert small.growth(large) == []
