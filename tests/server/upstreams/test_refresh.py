"""Old lists are read again by one proxy of a store, and servers that were started only for that end again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fakes import BOTH, FakeUpstream, proxy_over, said
from msgspec.structs import replace
from requirements import requirement

from foretool.server.upstreams.memory import REFRESH_S
from foretool.server.upstreams.refresh import AT_ONCE, REFRESH
from foretool.server.upstreams.upstream import State
from foretool.storage.opening import open_store
from foretool.storage.sqlite.leads import FileLead as Lead
from foretool.storage.steps import finish

pytestmark = pytest.mark.anyio


def age(stage: Any, *names: str, in_store: bool = True) -> None:
    """As if the lists of these servers were older than a day, and nobody had started them."""
    memory = stage.app.memory
    for name in names:
        memory._listed_at[name] -= REFRESH_S + 60
        if in_store:
            finish(memory._save_listed(replace(memory._records[name], listed_at=memory._listed_at[name])))
        stage.app.upstreams[name].rest()


async def until(condition: Any) -> None:
    async with asyncio.timeout(120):  # of the tests' own clock
        while not condition():
            await asyncio.sleep(0.1)


@requirement("start:refresh")
async def test_a_server_that_was_started_for_its_list_ends_again() -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH, pid=4711)
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        served = stage.app.upstreams["calc"]
        await until(lambda: served.state is State.READY)
        age(stage, "calc")
        await until(lambda: upstream.starts == 2 and served.state is State.KNOWN and not upstream.links)
        assert not stage.app.memory.is_stale("calc")
        assert said(await stage.client.call_tool("calc__add", {})) == "add"
        await asyncio.sleep(10)
        assert served.state is State.READY  # it was called, so it stays


@requirement("start:refresh")
async def test_a_server_that_is_called_meanwhile_stays() -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH, pid=4711)
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        served = stage.app.upstreams["calc"]
        await until(lambda: served.state is State.READY)
        age(stage, "calc")
        await until(lambda: upstream.starts == 2 or served.state is State.STARTING)
        assert said(await stage.client.call_tool("calc__add", {})) == "add"
        await asyncio.sleep(10)
        assert served.state is State.READY


@requirement("start:refresh")
async def test_a_few_servers_are_started_at_a_time() -> None:
    names = [f"s{number}" for number in range(3 * AT_ONCE)]
    upstreams = [FakeUpstream(name, ["add"], BOTH, pid=100 + place) for place, name in enumerate(names)]
    async with proxy_over(*upstreams) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await until(lambda: all(each.state is State.READY for each in stage.app.upstreams))
        age(stage, *names)
        await until(lambda: sum(len(each.links) for each in upstreams) <= AT_ONCE)  # the old ones have ended
        most = 0
        async with asyncio.timeout(300):
            while any(stage.app.memory.is_stale(name) for name in names):
                most = max(most, sum(len(each.links) for each in upstreams))
                await asyncio.sleep(0.1)
        assert 0 < most <= AT_ONCE
        await until(lambda: not any(each.links for each in upstreams))


@requirement("start:refresh")
async def test_while_another_proxy_refreshes_its_lists_are_read_from_the_store(tmp_path: Path) -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH, pid=4711)
    with open_store(tmp_path / "s.sqlite3") as store:
        async with proxy_over(upstream, store=store) as stage:
            await stage.client.initialize()
            await stage.client.list_tools()
            served = stage.app.upstreams["calc"]
            await until(lambda: served.state is State.READY)
            with Lead(store.path, REFRESH) as other:
                assert other.take()
                # The other proxy has listed it; this one knows an older list.
                age(stage, "calc", in_store=False)
                await until(lambda: not stage.app.memory.is_stale("calc"))
                assert upstream.starts == 1
                with store.atomic():
                    (record,) = [
                        each for each, _ in store.catalog.load([("calc", stage.app.memory._fingerprints["calc"])])
                    ]
                assert record.listed_at == stage.app.memory._listed_at["calc"]
