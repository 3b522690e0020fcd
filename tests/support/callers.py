"""Clients over real HTTP, of either era, before the real proxy: for what stdio alone would not show."""

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
from http_callers import http_rules
from http_fakes import PATIENCE_S

from foretool.server.protocol import jsonrpc, versions
from foretool.server.transports.client.http import HttpServer

CHANGED = "notifications/tools/list_changed"
on_the_real_clock = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For tests whose loop would else jump to the next timer while a socket is being written to."""
ACCEPT = {"accept": "application/json, text/event-stream"}


class Caller:
    """A client over HTTP: a legacy session, or a modern caller of this name."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        name: str = "",
        capabilities: Json | None = None,
        path: str = "/mcp",
        log_level: str = "",
    ) -> None:
        self.http = http
        self.name = name
        self.path = path
        self.capabilities = capabilities or {}
        self.log_level = log_level
        """Sent with each request of the modern era."""
        self.answers: dict[str, Json] = {}
        """By method: what a question in the course of a request is answered with."""
        self.questions: list[Json] = []
        self.notices: list[Json] = []
        """Notifications in the course of requests."""
        self.session: dict[str, str] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.heard: asyncio.Queue[Json] = asyncio.Queue()
        self._ids = itertools.count(1)

    async def greet(self, name: str = "old", version: str = "1") -> Caller:
        info = {"name": name, "version": version}
        params = {"protocolVersion": "2025-11-25", "capabilities": self.capabilities, "clientInfo": info}
        message, headers = self._request("initialize", params)
        response = await self.http.post(self.path, json=message, headers={**ACCEPT, **headers})
        self.session = {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self.http.post(self.path, json=message, headers={**ACCEPT, **self.session})
        return self

    def _request(self, method: str, params: Json) -> tuple[Json, dict[str, str]]:
        if not self.name:
            return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}, self.session
        meta = {
            versions.META_VERSION: versions.LATEST_MODERN,
            versions.META_CLIENT_INFO: {"name": self.name, "version": "1"},
            versions.META_CAPABILITIES: self.capabilities,
        } | ({versions.META_LOG_LEVEL: self.log_level} if self.log_level else {})
        headers = {"mcp-protocol-version": versions.LATEST_MODERN, "mcp-method": method}
        named = params.get("name") or (params.get("uri") if method == "resources/read" else None)
        headers |= {"mcp-name": named} if named else {}
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}}, headers

    async def reply(self, method: str, params: Json | None = None) -> Json:
        """The whole reply; questions on its stream are answered meanwhile."""
        message, headers = self._request(method, params or {})
        async with self.http.stream("POST", self.path, json=message, headers={**ACCEPT, **headers}) as response:
            if response.headers["content-type"].startswith("application/json"):
                await response.aread()
                whole: Json = response.json()
                return whole
            async for line in response.aiter_lines():
                if line.startswith("data: {") and (found := await self._take(json.loads(line[6:]), message["id"])):
                    return found
        raise EOFError(f"the stream of {method} ended without a reply")

    async def _take(self, said: Json, awaited: Any) -> Json | None:
        if "method" not in said:
            return said if said["id"] == awaited else None
        if "id" not in said:
            self.notices.append(said)
            return None
        self.questions.append(said)
        result = self.answers[said["method"]]
        message = {"jsonrpc": "2.0", "id": said["id"], "result": result}
        await self.http.post(self.path, json=message, headers={**ACCEPT, **self.session})
        return None

    async def ask(self, method: str, params: Json | None = None) -> Json:
        reply = await self.reply(method, params)
        result: Json = reply["result"]
        return result

    async def body(self, method: str) -> bytes:
        """The result of a request, as it was sent."""
        message, headers = self._request(method, {})
        response = await self.http.post(self.path, json=message, headers={**ACCEPT, **headers})
        lines = [line.removeprefix("data: ") for line in response.text.splitlines() if '"result"' in line]
        return bytes(jsonrpc.fields(lines[-1].encode())["result"])

    async def tools(self) -> str:
        """Its list, as JSON."""
        return json.dumps((await self.ask("tools/list"))["tools"])

    async def call(self, name: str, **arguments: Any) -> Json:
        return await self.ask("tools/call", {"name": name, "arguments": arguments})

    async def listen(self, *uris: str) -> None:
        """From now on `heard` takes what the server says unasked, and of these resources (modern era)."""
        ready = asyncio.Event()
        self.tasks.append(asyncio.create_task(self._listen(ready, uris)))
        await ready.wait()

    async def _listen(self, ready: asyncio.Event, uris: tuple[str, ...]) -> None:
        wanted: Json = {"toolsListChanged": True} | ({"resourceSubscriptions": list(uris)} if uris else {})
        message, headers = self._request("subscriptions/listen", {"notifications": wanted})
        how: Any = {"json": message} if self.name else {}
        how["headers"] = {**ACCEPT, **headers}
        async with self.http.stream("POST" if self.name else "GET", self.path, **how) as it:
            async for line in it.aiter_lines():
                ready.set()  # the acknowledgment, or the event that a legacy stream begins with
                if line.startswith("data: {"):
                    await self.heard.put(json.loads(line[6:]))

    async def told(self, method: str = CHANGED) -> Json:
        """The next announcement."""
        while (message := await self.heard.get())["method"] != method:
            pass
        return message

    async def leave(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@asynccontextmanager
async def http_over(*upstreams: FakeUpstream, **settings: Any) -> AsyncIterator[tuple[Stage, httpx2.AsyncClient]]:
    async with proxy_over(*upstreams, **settings) as stage:
        server = HttpServer(stage.app.router, http_rules(profiles=list(stage.app.config.profiles)))
        serving = asyncio.create_task(server.serve())
        await server.ready.wait()
        try:
            async with httpx2.AsyncClient(
                verify=False, base_url=f"http://127.0.0.1:{server.address.port}", timeout=PATIENCE_S
            ) as http:
                yield stage, http
        finally:
            await server.stop()
            await serving
