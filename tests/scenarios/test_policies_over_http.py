"""The dynamic policies over real HTTP: who is given which list, what is held, and who is told of a change."""

from __future__ import annotations

import asyncio
import json

import pytest
from callers import Caller, http_over
from fakes import FakeUpstream, failing_store, set_settings
from requirements import requirement

from foretool.server.lists import growth
from foretool.server.lists.policy import TRIES

pytestmark = pytest.mark.anyio


def names(tools: str) -> list[str]:
    return [tool["name"] for tool in json.loads(tools)]


def calc() -> FakeUpstream:
    return FakeUpstream("calc", ["add", "subtract", "divide"], entry={"pin": ["divide"]})


@requirement("http:dynamic")
async def test_a_frozen_list_varies_neither_by_connection_nor_by_request() -> None:
    async with http_over(calc(), policy="frozen", list_tokens=0) as (stage, http):
        callers = [await Caller(http).greet(), await Caller(http).greet("else"), Caller(http, "a"), Caller(http, "b")]
        before = [await caller.tools() for caller in callers]
        for caller in callers:
            found = await caller.call("discover_tools", task="subtract numbers", structured=True)
            assert found["structuredContent"]["matches"][0]["name"] == "calc__subtract"
            await caller.call("calc__subtract")
        after = [await caller.tools() for caller in callers]
        misses = {miss.tool for miss in stage.misses()}
    assert len({*before, *after}) == 1
    assert names(before[0]) == ["calc__divide", "call_tool", "call_tool_write", "discover_tools"]
    assert misses == {"calc__subtract"}


@requirement("http:dynamic")
async def test_a_growing_list_grows_for_its_own_session_and_the_answer_waits_until_it_is_listed() -> None:
    async with http_over(calc(), policy="growing", hold_ms=5000) as (_, http):
        caller, other = await Caller(http).greet(), await Caller(http).greet()
        before = await caller.tools()
        rest = await other.tools()
        await caller.listen()
        answer = asyncio.create_task(caller.call("discover_tools", names=["calc__add"]))
        await caller.told()
        assert not answer.done()
        after = await caller.tools()
        await answer
        assert await other.tools() == rest
        await caller.leave()
    assert names(after) == [*names(before), "calc__add"]
    assert after.startswith(before[:-1])


@requirement("http:dynamic")
async def test_sessions_that_do_not_list_again_twice_are_frozen_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "RELIST_S", 0.05)
    async with http_over(calc(), hold_ms=10, list_whole=False) as (stage, http):
        for failures in (1, 2):
            caller = await Caller(http).greet("claude-code", "9")
            await caller.tools()
            await caller.listen()
            await caller.call("discover_tools", names=["calc__add"])
            await caller.told()
            while (record := stage.store.clients.get("claude-code", "9", "legacy")) is None or (
                record.announced < failures
            ):
                await asyncio.sleep(0.01)
        fresh = await Caller(http).greet("claude-code", "9")
        for _ in range(TRIES):  # its list grows no more than it takes to see whether it lists again
            await fresh.tools()
            await fresh.call("discover_tools", names=["calc__add"])
        before = await fresh.tools()
        await fresh.call("discover_tools", names=["calc__subtract"])
        after = await fresh.tools()
        await caller.leave()
    assert (record.announced, record.relisted) == (2, 0)
    assert before == after


@requirement("http:dynamic")
async def test_a_change_is_announced_to_every_listener_of_either_era_once() -> None:
    upstream = calc()
    upstream.entry["trust"] = "auto"
    async with http_over(upstream, policy="full") as (_, http):
        callers = [await Caller(http).greet(), await Caller(http).greet(), Caller(http, "a"), Caller(http, "b")]
        for caller in callers:
            await caller.tools()
            await caller.listen()
        upstream.change("add", "multiply")
        for caller in callers:
            await caller.told()
            assert "calc__multiply" in names(await caller.tools())
        silent = [caller.heard.empty() for caller in callers]
        for caller in callers:
            await caller.leave()
    assert silent == [True] * 4


@requirement("http:dynamic", "list:frozen:byte-identical")
@pytest.mark.parametrize("modern", [False, True])
async def test_a_frozen_list_is_the_same_bytes_for_every_connection_and_after_a_restart(modern: bool) -> None:
    store, _ = failing_store()
    runs: list[set[bytes]] = []
    for _ in range(3):
        bodies = set()
        async with http_over(calc(), store=store, policy="frozen") as (_, http):
            for name in ("one", "other"):
                caller = Caller(http, name) if modern else await Caller(http).greet(name)
                bodies.add(await caller.body("tools/list"))
                await caller.call("calc__subtract")
                bodies.add(await caller.body("tools/list"))
        runs.append(bodies)
    assert [len(bodies) for bodies in runs] == [1, 1, 1]
    # In the first week a restart brings in what was used, once.
    assert runs[0] != runs[1] == runs[2]
    assert b'"calc__divide"' in runs[0].pop()


@requirement("http:dynamic", "list:epoch-announced")
async def test_an_epoch_is_announced_to_every_listener_of_either_era_over_http() -> None:
    async with http_over(calc(), policy="frozen") as (stage, http):
        callers = [await Caller(http).greet(), await Caller(http).greet(), Caller(http, "a"), Caller(http, "b")]
        for caller in callers:
            assert "calc__subtract" not in names(await caller.tools())
            await caller.listen()
        await callers[0].call("calc__subtract")
        set_settings(stage, epoch_s=0.001)
        stage.app.tick()
        for caller in callers:
            await caller.told()
            assert "calc__subtract" in names(await caller.tools())
        silent = [caller.heard.empty() for caller in callers]
        for caller in callers:
            await caller.leave()
    assert silent == [True] * 4


@requirement("http:dynamic", "list:growing:hold")
async def test_an_answer_waits_no_longer_than_hold_ms_for_a_client_that_does_not_list_again() -> None:
    async with http_over(calc(), policy="growing", hold_ms=200) as (_, http):
        caller = await Caller(http).greet()
        await caller.tools()
        started = asyncio.get_running_loop().time()
        await caller.call("discover_tools", names=["calc__add"])
        waited = asyncio.get_running_loop().time() - started
    assert 0.19 < waited < 5.0


@requirement("http:dynamic", "list:growing:allowed")
async def test_over_http_too_a_list_grows_only_where_it_may() -> None:
    async with http_over(calc()) as (_, http):
        callers = [Caller(http, "claude-code"), Caller(http, "nobody")]
        for caller in callers:
            before = await caller.tools()
            await caller.listen()
            await caller.call("discover_tools", names=["calc__add"])
            assert await caller.tools() == before
            assert caller.heard.qsize() <= 1  # the acknowledgment of a modern one
            await caller.leave()


@requirement("http:dynamic", "conversation:handle")
async def test_over_http_chats_of_one_caller_are_told_apart_by_their_handles() -> None:
    async with http_over(calc(), policy="frozen") as (stage, http):
        caller = Caller(http, "desk")
        handles = [
            (await caller.call("discover_tools", task="subtract", structured=True))["structuredContent"]["handle"]
            for _ in range(2)
        ]
        bridged = [("calc__subtract", handles[0]), ("calc__add", handles[1]), ("calc__divide", handles[0])]
        for name, handle in bridged:
            await caller.ask(
                "tools/call",
                {"name": "call_tool_write", "arguments": {"name": name, "arguments": {}, "handle": handle}},
            )
        recorded = [(call.tool, call.handle) for call in stage.calls()]
    assert recorded == bridged
