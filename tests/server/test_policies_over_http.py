"""The dynamic policies over real HTTP: who is given which list, what is held, and who is told of a change."""

from __future__ import annotations

import asyncio
import json

import pytest
from callers import Caller, http_over
from fakes import FakeUpstream
from requirements import requirement

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
            found = await caller.call("discover_tools", task="subtract numbers")
            assert found["structuredContent"]["matches"][0]["name"] == "calc__subtract"
            await caller.call("calc__subtract")
        after = [await caller.tools() for caller in callers]
        misses = {miss.tool for miss in stage.misses()}
    assert len({*before, *after}) == 1
    assert names(before[0]) == ["calc__divide", "call_tool", "discover_tools"]
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
async def test_a_session_that_does_not_list_again_is_frozen_from_then_on() -> None:
    settings = {"hold_ms": 10, "relist_window_s": 0.05}
    async with http_over(calc(), **settings) as (stage, http):
        caller = await Caller(http).greet("claude-code", "9")
        await caller.tools()
        await caller.listen()
        await caller.call("discover_tools", names=["calc__add"])
        await caller.told()
        while (record := stage.store.client("claude-code", "9", "legacy")) is None or not record.announced:
            await asyncio.sleep(0.01)
        fresh = await Caller(http).greet("claude-code", "9")
        before = await fresh.tools()
        await fresh.call("discover_tools", names=["calc__add"])
        after = await fresh.tools()
        await caller.leave()
    assert (record.announced, record.relisted) == (1, 0)
    assert before == after


@requirement("http:dynamic")
async def test_a_change_is_announced_to_every_listener_of_either_era_once() -> None:
    upstream = calc()
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
