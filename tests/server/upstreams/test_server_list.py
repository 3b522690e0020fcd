"""The list of an upstream's tools: when it is asked for, and when it is asked for again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import LEGACY, MODERN, PATIENCE_S, FakeUpstream, tool
from http_fakes import Asked as HttpAsked
from http_fakes import serving
from http_fakes import upstream as served
from requirements import requirement
from running_upstream import Host, called, running

from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import Message, Raw
from foretool.server.transports.tasks import Tasks
from foretool.server.transports.upstream.base import Link, Receiver
from foretool.server.transports.upstream.http import HttpLink
from foretool.server.transports.upstream.stdio import Child, ChildWatcher, open_stdio
from foretool.server.upstreams import server_list
from foretool.server.upstreams.lines import OpenLink
from foretool.server.upstreams.server_list import LIST_AGAIN_S, LIST_S, LONG_LIST_S, ListLimit, ServerList
from foretool.server.upstreams.upstream import State, Upstream
from foretool.storage.records import Era

pytestmark = pytest.mark.anyio


@requirement("catalog:list-again")
@pytest.mark.parametrize("eras", [LEGACY, MODERN])
async def test_one_that_refuses_to_list_is_asked_again_after_growing_pauses(eras: tuple[Era, ...]) -> None:
    fake = FakeUpstream("calc", ["add"], eras)
    fake.scripts["tools/list"] = lambda asked: asked.fail(-32000, "log in first")
    async with running(fake) as (upstream, host):
        await called(upstream, eras[0])
        for count, pause in enumerate((*LIST_AGAIN_S, LIST_AGAIN_S[-1], LIST_AGAIN_S[-1]), 1):
            await asyncio.sleep(0.01)
            assert (fake.count("tools/list"), upstream.state, host.tools) == (count, State.UNLISTED, [])
            assert "its tools could not be listed" in upstream.error and "log in first" in upstream.error
            assert isinstance(await called(upstream, eras[0]), Message)  # calls are served meanwhile
            await asyncio.sleep(pause)
        del fake.scripts["tools/list"]
        await asyncio.sleep(LIST_AGAIN_S[-1])
        assert (upstream.state, upstream.error, host.tools) == (State.READY, "", [1])
        asked = fake.count("tools/list")
        await asyncio.sleep(3 * LIST_AGAIN_S[-1])
        assert fake.count("tools/list") == asked
        assert fake.starts == len(eras)


@requirement("catalog:list-again")
@pytest.mark.parametrize("eras", [LEGACY, MODERN])
async def test_one_that_takes_long_to_list_gets_longer_the_second_time(eras: tuple[Era, ...]) -> None:
    fake = FakeUpstream("calc", ["add"], eras)
    fake.hold("tools/list")
    async with running(fake) as (upstream, host):
        await called(upstream, eras[0])
        await asyncio.sleep(LIST_S + 0.5)
        assert (upstream.state, upstream.error[-22:]) == (State.UNLISTED, "tools/list within 60 s")
        second = await fake.asked("tools/list", 2)
        await asyncio.sleep(LONG_LIST_S - 5.0)
        second.reply({"tools": [tool("add")]})
        await asyncio.sleep(0.1)
        assert (upstream.state, host.tools, fake.count("tools/list")) == (State.READY, [1], 2)


@requirement("catalog:list-again")
async def test_an_announcement_does_not_wait_for_the_pause() -> None:
    fake = FakeUpstream("calc", ["add"])
    fake.scripts["tools/list"] = lambda asked: asked.fail(-32000, "log in first")
    async with running(fake) as (upstream, host):
        await called(upstream)
        await asyncio.sleep(sum(LIST_AGAIN_S[:-1]) + 1.0)
        del fake.scripts["tools/list"]
        fake.change("add", "sub")
        await asyncio.sleep(1.0)
        assert (upstream.state, host.tools) == (State.READY, [2])


@requirement("catalog:list-again")
async def test_one_without_a_list_is_not_put_to_rest_and_a_stopped_one_is_not_asked_again() -> None:
    fake = FakeUpstream("calc", ["add"])
    fake.scripts["tools/list"] = lambda asked: asked.fail(-32000, "log in first")
    async with running(fake) as (upstream, _):
        await called(upstream)
        await asyncio.sleep(0.1)
        upstream.rest()
        assert upstream.state is State.UNLISTED
    asked = fake.count("tools/list")
    await asyncio.sleep(2 * LIST_AGAIN_S[-1])
    assert fake.count("tools/list") == asked


def over_stdio(url: str, watcher: ChildWatcher) -> OpenLink:
    arguments = [str(Path(__file__).parents[2] / "support" / "echo_upstream.py"), "--refuse", "2"]
    return lambda receiver, era: open_stdio(Child(sys.executable, arguments, {}, None), receiver, watcher, 100_000)


def over_http(url: str, watcher: ChildWatcher) -> OpenLink:
    async def open_link(receiver: Receiver, era: Era) -> Link:
        return HttpLink(url, {}, era, receiver, 100_000)

    return open_link


def sulking(era: Era) -> Callable[[HttpAsked], Any]:
    """A server over HTTP that fails twice to list: with an error, and with a status."""
    lists = 0
    modern = {"resultType": "complete", "supportedVersions": [versions.LATEST_MODERN], "capabilities": {"tools": {}}}
    legacy = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x"}}

    async def handle(asked: HttpAsked) -> None:
        nonlocal lists
        method = asked.body["method"] if asked.body else ""
        if method == ("server/discover" if era == "modern" else "initialize"):
            await asked.result(modern if era == "modern" else legacy)
        elif method == "tools/list":
            lists += 1
            if lists == 1:
                error = {"code": -32000, "message": "log in first"}
                await asked.answer({"jsonrpc": "2.0", "id": asked.id, "error": error})
            elif lists == 2:
                await asked.answer(b"the gateway is down", status=502, kind="text/plain")
            else:
                await asked.result({"resultType": "complete", "tools": [tool("echo"), tool("weather")]})
        else:
            await asked.answer(b"", status=202 if "id" not in (asked.body or {"id": 0}) else 405, kind="text/plain")

    return handle


@requirement("catalog:list-again")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("opened", "era"), [(over_stdio, "legacy"), (over_http, "legacy"), (over_http, "modern")])
async def test_over_real_transports_it_is_asked_again_too(
    opened: Callable[[str, ChildWatcher], OpenLink], era: Era, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_list, "LIST_AGAIN_S", (0.01,))
    host, watcher = Host(), ChildWatcher()
    async with serving(served(sulking(era))) as url:
        upstream = Upstream("echo", host, opened(url, watcher))
        task = asyncio.ensure_future(upstream.run())
        await asyncio.sleep(0)
        upstream.start(era)
        async with asyncio.timeout(PATIENCE_S):
            while not host.tools:
                await asyncio.sleep(0.01)
        assert (host.tools, host.states.count(State.UNLISTED), upstream.state) == ([2], 2, State.READY)
        await upstream.stop()
        await task
    watcher.close()


@requirement("trust:limits:tools")
@pytest.mark.parametrize(("limit", "most"), [(ListLimit(tools=3), 3), (ListLimit(size=500), 5)])
async def test_of_a_list_that_is_too_long_the_first_tools_are_used_and_no_more_pages_asked_for(
    limit: ListLimit, most: int
) -> None:
    fake = FakeUpstream("calc", [f"t{number:03}" for number in range(100)], page=2)
    async with running(fake, list_limit=lambda: limit) as (upstream, host):
        await called(upstream)
        await asyncio.sleep(1)
        assert host.tools == [most]
        assert "raise max_tools to use more" in upstream.list_problem
        assert fake.count("tools/list") == most // 2 + 1
        fake.change("add")
        await asyncio.sleep(1)
        assert (host.tools, upstream.list_problem) == ([most, 1], "")


@requirement("trust:limits:changes")
async def test_one_that_announces_changes_without_end_is_asked_now_and_then() -> None:
    fake = FakeUpstream("calc", ["add"])
    async with running(fake) as (upstream, host):
        await called(upstream)
        for _ in range(200):
            fake.change("add")
            await asyncio.sleep(0.5)
        assert 20 <= fake.count("tools/list") <= 40  # of 200 changes in 100 s
        fake.change("add", "sub")
        await asyncio.sleep(10)
        assert host.tools[-1] == 2, "the last change is never lost"
        upstream.relist_all()
        await asyncio.sleep(0.2)
        assert fake.count("tools/list") >= 22


@pytest.mark.parametrize(
    ("long", "expected"), [(10, ["turn", "fields", "turn", "items", "turn"]), (10_000, ["fields", "items"])]
)
async def test_each_look_at_a_list_of_megabytes_is_a_step_of_its_own(
    monkeypatch: pytest.MonkeyPatch, long: int, expected: list[str]
) -> None:
    said: list[str] = []
    loop = asyncio.get_running_loop()

    def note(name: str, look: Callable[[Any], Any], value: Any) -> Any:
        said.append(name)
        loop.call_soon(said.append, "turn")
        return look(value)

    async def ask_raw(*asked: Any) -> Raw:
        loop.call_soon(said.append, "turn")
        return Raw(b'{"tools": [{"name": "a"}, {"name": "b"}]}')

    monkeypatch.setattr(server_list, "LONG", long)
    fields, items = jsonrpc.fields, jsonrpc.items
    monkeypatch.setattr(jsonrpc, "fields", lambda value: note("fields", fields, value))
    monkeypatch.setattr(jsonrpc, "items", lambda value: note("items", items, value))
    connection: Any = SimpleNamespace(server_info=SimpleNamespace(capabilities=None), ask_raw=ask_raw)
    listed: list[int] = []

    async def on_listed(tools: Sequence[Raw]) -> None:
        listed.append(len(tools))

    await ServerList("a", list, Tasks("a"), on_listed, said.append).ask(connection)
    assert said == expected
    assert listed == [2]
