"""An HTTP server before a proxy that only echoes, and its callers."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from http_fakes import PATIENCE_S, soon

from foretool.fleet.replicas.shared_sessions import SharedSessions
from foretool.server.config.settings import TokenEntry
from foretool.server.config.tokens import digest
from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import Message
from foretool.server.transports.client.access import Access
from foretool.server.transports.client.base import Channel
from foretool.server.transports.client.http import HttpServer
from foretool.server.transports.client.http_modern import InputSchema
from foretool.server.transports.client.http_rules import HttpLimits, HttpRules
from foretool.server.transports.client.security import Guards
from foretool.storage.records import Era

JSON_AND_EVENTS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
"""The first message of a legacy client."""

META = {versions.META_VERSION: "2026-07-28", versions.META_CAPABILITIES: {}}


def bearer(token: str) -> dict[str, str]:
    """Return the header that shows a token."""
    return {"authorization": f"Bearer {token}"}


class EchoFront:
    """Answers at once with what it was asked; `hold` and `subscriptions/listen` leave the answer to the test."""

    def __init__(self, era: Era, standalone: Channel, profile: str, principal: str, version: str) -> None:
        self.era: Era = era
        self.standalone = standalone
        self.profile = profile
        self.principal = principal
        self.version = version
        self.told: list[Message] = []
        self.held: asyncio.Queue[tuple[Message, Channel]] = asyncio.Queue()
        self.cancelled: asyncio.Queue[tuple[Channel, str]] = asyncio.Queue()
        self.closed = asyncio.Event()
        self.has_left = asyncio.Event()
        self.session_key = f"key-{principal}"
        self.state: dict[str, Any] = {"version": version}
        """What other replicas are to know."""
        self.replica = ""
        self.listed = asyncio.Event()

    # What several replicas serve

    def share(self, replica: str) -> None:
        self.replica = replica

    def memo(self) -> bytes:
        return jsonrpc.encode(self.state)

    def resume(self, memo: bytes) -> None:
        self.state = json.loads(memo)
        self.version = self.state["version"]

    def note_listed(self) -> None:
        self.listed.set()

    def leave(self) -> None:
        self.has_left.set()

    in_flight = 0

    def receive(self, message: Message, channel: Channel) -> None:
        ident = message.id
        if message.method is jsonrpc.UNSET or message.id is jsonrpc.UNSET:
            self.told.append(message)
        elif message.method == "initialize":
            self._answer(ident, channel, {"protocolVersion": self.version, "capabilities": {}})
        elif message.method == "fail":
            code = jsonrpc.decode_value(message.params)["code"]
            channel.finish(jsonrpc.failure(ident, jsonrpc.error_object(code, "no")), code)
        elif message.method in ("hold", "subscriptions/listen"):
            self.held.put_nowait((message, channel))
        else:
            self._answer(ident, channel, {"method": message.method, "profile": self.profile})

    def _answer(self, ident: Any, channel: Channel, value: Any) -> None:
        channel.finish(jsonrpc.result(ident, jsonrpc.raw(value)), None)

    def cancel(self, channel: Channel, reason: str) -> None:
        self.cancelled.put_nowait((channel, reason))

    def close(self) -> None:
        self.closed.set()

    async def next(self) -> tuple[Message, Channel]:
        async with asyncio.timeout(PATIENCE_S):
            return await self.held.get()


class Echo:
    """The proxy as the server knows it; it answers by itself."""

    def __init__(self, version: str = "2025-11-25") -> None:
        self.version = version
        self.fronts: list[EchoFront] = []

    def open(
        self, era: Era, transport: str, standalone: Channel, profile: str = "", principal: str = "", name: str = ""
    ) -> EchoFront:
        assert transport == "http"
        self.fronts.append(EchoFront(era, standalone, profile, principal, self.version))
        return self.fronts[-1]


class Caller:
    """A raw HTTP client of one server."""

    def __init__(self, client: httpx2.AsyncClient, fronts: Echo, server: HttpServer) -> None:
        self.http = client
        self.fronts = fronts
        self.server = server
        self.session: dict[str, str] = {}
        self._ids = itertools.count(1)

    async def initialize(self, path: str = "/mcp", **headers: str) -> httpx2.Response:
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
        response = await self.http.post(path, json=body, headers={**JSON_AND_EVENTS, **headers})
        if "mcp-session-id" in response.headers:
            self.session = {"mcp-session-id": response.headers["mcp-session-id"]}
        return response

    @property
    def front(self) -> EchoFront:
        return self.fronts.fronts[-1]

    def front_of(self, era: Era) -> EchoFront:
        return next(front for front in self.fronts.fronts if front.era == era)

    async def front_after_call(self) -> tuple[Message, Channel]:
        """What the modern front holds, which exists from its first request on."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.fronts.fronts:
                await asyncio.sleep(0)
        return await self.front.next()

    def legacy(self, method: str, id: Any = 1, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        return self.http.stream("POST", "/mcp", json=body, headers={**JSON_AND_EVENTS, **self.session})

    def modern(self, method: str, path: str = "/mcp", extra: dict[str, str] | None = None, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {"_meta": META, **params}}
        headers = {**JSON_AND_EVENTS, "mcp-protocol-version": "2026-07-28", "mcp-method": method, **(extra or {})}
        return self.http.stream("POST", path, json=body, headers=headers)

    def get(self, **headers: str) -> Any:
        sent = {"accept": "text/event-stream", **self.session, **{k.replace("_", "-"): v for k, v in headers.items()}}
        return self.http.stream("GET", "/mcp", headers=sent)


def http_rules(
    *,
    tokens: Mapping[str, Sequence[str]] | None = None,
    profiles: Sequence[str] = ("",),
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    **limits: Any,
) -> HttpRules:
    """Rules with these tokens, each with the profiles that it opens; without tokens, everything is open."""
    entries = [
        TokenEntry(name=token, sha256=digest(token), profiles=tuple(opened)) for token, opened in (tokens or {}).items()
    ]
    access = Access(entries, profiles, is_open=tokens is None)
    return HttpRules(access, Guards(allowed_hosts, allowed_origins), HttpLimits(**limits))


@asynccontextmanager
async def http_server(
    fronts: Echo | None = None, input_schema: InputSchema | None = None, sharing: SharedSessions | None = None,
    **rules: Any,
) -> AsyncIterator[Caller]:  # fmt: skip
    """A server by the rules of `http_rules`, and a caller of it."""
    fronts = fronts or Echo()
    made = HttpServer(fronts, http_rules(**rules), input_schema=input_schema, sharing=sharing)
    running = asyncio.create_task(made.serve())
    await soon(made.ready)
    try:
        # To read the system's certificates takes 20 ms each time, and nothing here speaks TLS.
        async with httpx2.AsyncClient(
            verify=False, base_url=f"http://127.0.0.1:{made.address.port}", timeout=PATIENCE_S
        ) as client:
            yield Caller(client, fronts, made)
    finally:
        async with asyncio.timeout(PATIENCE_S):
            await made.stop()
            await running


class EventReader:
    """Events of a response, one at a time."""

    def __init__(self, response: httpx2.Response) -> None:
        assert response.headers["content-type"] == "text/event-stream", response.status_code
        self.lines = response.aiter_lines()

    async def next(self) -> dict[str, str] | None:
        event: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE_S):
            async for line in self.lines:
                if not line and event:
                    return event
                name, _, value = line.partition(":")
                event[name] = value.removeprefix(" ")
        return None

    async def message(self) -> Any:
        event = await self.next()
        return None if event is None else json.loads(event["data"])


def notice(number: int, size: int = 0) -> bytes:
    params = jsonrpc.raw({"n": number, "text": "x" * size})
    return jsonrpc.notification("notifications/message", params)


async def read_all(request: Any) -> tuple[httpx2.Headers, list[Any]]:
    async with request as response:
        events, reader = [], EventReader(response)
        while (event := await reader.message()) is not None:
            events.append(event)
        return response.headers, events


async def hear(request: Any, count: int) -> list[Any]:
    """Some messages of a stream, which is closed then."""
    async with request as response:
        events = EventReader(response)
        return [await events.message() for _ in range(count)]


async def messages(response: httpx2.Response) -> list[Any]:
    events, found = EventReader(response), []
    while (event := await events.next()) is not None:
        if event["data"]:
            found.append(json.loads(event["data"]))
    return found


async def deaf(caller: Caller, method: str, headers: dict[str, str]) -> asyncio.StreamWriter:
    """Sends a request and never reads the answer."""
    params = {"_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 5, "method": method, "params": params}).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", caller.server.address.port, limit=1)
    lines = {"host": "localhost", "content-length": str(len(body)), **JSON_AND_EVENTS, **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    writer.write(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
    await writer.drain()
    return writer


def stream_limit() -> int:
    from foretool.server.transports.client import event_store

    return event_store.STREAM_BYTES
