"""The dynamic policies over real HTTP: who is given which list, what is held, and who is told of a change."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from fakes import FakeUpstream, Json, Stage, proxy_over
from requirements import requirement

from foretool.server import protocol
from foretool.server.edges.http import HttpEdge

pytestmark = pytest.mark.anyio

PATIENCE_S = 10.0
CHANGED = "notifications/tools/list_changed"
ACCEPT = {"accept": "application/json, text/event-stream"}


def events(text: str) -> list[Json]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


class Caller:
    """A client over HTTP: a legacy session, or a modern caller of this name."""

    def __init__(self, http: httpx2.AsyncClient, name: str = "") -> None:
        self.http = http
        self.name = name
        self.session: dict[str, str] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.heard: asyncio.Queue[Json] = asyncio.Queue()
        self._ids = itertools.count(1)

    async def greet(self, name: str = "old", version: str = "1") -> Caller:
        info = {"name": name, "version": version}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        response = await self._post("initialize", params)
        self.session = {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self.http.post("/mcp", json=message, headers={**ACCEPT, **self.session})
        return self

    def _request(self, method: str, params: Json) -> tuple[Json, dict[str, str]]:
        if not self.name:
            return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}, self.session
        meta = {
            protocol.META_VERSION: protocol.LATEST_MODERN,
            protocol.META_CLIENT_INFO: {"name": self.name, "version": "1"},
            protocol.META_CAPABILITIES: {},
        }
        headers = {"mcp-protocol-version": protocol.LATEST_MODERN, "mcp-method": method}
        headers |= {"mcp-name": params["name"]} if "name" in params else {}
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}}, headers

    async def _post(self, method: str, params: Json) -> httpx2.Response:
        message, headers = self._request(method, params)
        return await self.http.post("/mcp", json=message, headers={**ACCEPT, **headers})

    async def ask(self, method: str, params: Json | None = None) -> Json:
        response = await self._post(method, params or {})
        is_json = response.headers["content-type"].startswith("application/json")
        reply = response.json() if is_json else events(response.text)[-1]
        result: Json = reply["result"]
        return result

    async def tools(self) -> str:
        """Its list, as JSON."""
        return json.dumps((await self.ask("tools/list"))["tools"])

    async def call(self, name: str, **arguments: Any) -> Json:
        return await self.ask("tools/call", {"name": name, "arguments": arguments})

    async def listen(self) -> None:
        """From now on `heard` takes what the server says unasked."""
        ready = asyncio.Event()
        self.tasks.append(asyncio.create_task(self._listen(ready)))
        await ready.wait()

    async def _listen(self, ready: asyncio.Event) -> None:
        message, headers = self._request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        how: Any = {"json": message} if self.name else {}
        async with self.http.stream("POST" if self.name else "GET", "/mcp", headers={**ACCEPT, **headers}, **how) as it:
            async for line in it.aiter_lines():
                ready.set()  # the acknowledgment, or the event that a legacy stream begins with
                if line.startswith("data: {"):
                    await self.heard.put(json.loads(line[6:]))

    async def told(self) -> Json:
        """The next announcement."""
        while (message := await self.heard.get())["method"] != CHANGED:
            pass
        return message

    async def leave(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@asynccontextmanager
async def http_over(*upstreams: FakeUpstream, **settings: Any) -> AsyncIterator[tuple[Stage, httpx2.AsyncClient]]:
    async with asyncio.timeout(PATIENCE_S), proxy_over(*upstreams, **settings) as stage:
        edge = HttpEdge(stage.app.proxy)
        serving = asyncio.create_task(edge.serve())
        await edge.ready.wait()
        try:
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{edge.port}", timeout=PATIENCE_S) as http:
                yield stage, http
        finally:
            await edge.stop()
            await serving


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
