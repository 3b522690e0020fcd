"""What the tests of links and edges share: an app on loopback, a scripted upstream, a receiver that takes notes."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Message

PATIENCE_S = 30.0
"""For one answer on a busy machine; on an idle one nothing here takes a second."""


class _Server(uvicorn.Server):
    def capture_signals(self) -> Any:
        return nullcontext()


@asynccontextmanager
async def serving(app: Any, port: int = 0, *, lifespan: bool = False) -> AsyncIterator[str]:
    """Serve an ASGI app on loopback; gives its base URL."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on" if lifespan else "off",
        timeout_graceful_shutdown=1,
        ws="none",
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve([listener]))
    try:
        while not server.started and not running.done():
            await asyncio.sleep(0)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
        listener.close()


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Asked:
    """One HTTP request that reached the upstream, and the means to answer it."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    send: Callable[[dict[str, Any]], Awaitable[None]]
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> Any:
        return self.body["id"]

    async def start(self, status: int = 200, **headers: str) -> None:
        pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": pairs})

    async def write(self, data: bytes, more: bool = True) -> None:
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    async def end(self) -> None:
        await self.write(b"", more=False)

    async def answer(self, value: Any, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        await self.start(status, content_type=kind, **headers)
        await self.write(data, more=False)

    async def result(self, value: Any, **headers: str) -> None:
        await self.answer({"jsonrpc": "2.0", "id": self.id, "result": value}, **headers)

    async def stream(self, **headers: str) -> None:
        await self.start(content_type="text/event-stream", **headers)

    async def event(self, message: dict[str, Any] | None, **fields: Any) -> None:
        lines = [f"{name}: {value}" for name, value in fields.items()]
        lines.append("data: " + ("" if message is None else json.dumps({"jsonrpc": "2.0", **message})))
        await self.write(("\n".join(lines) + "\n\n").encode())


def _read(body: bytes) -> Any:
    """The JSON of a body, or its text."""
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body.decode()


Handler = Callable[[Asked], Awaitable[None]]


def upstream(handler: Handler) -> Any:
    """An ASGI app that lets `handler` answer every request."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            part = await receive()
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        asked = Asked(scope["method"], scope["path"], headers, _read(body), send)

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            asked.gone.set()

        watcher = asyncio.create_task(watch())
        try:
            await handler(asked)
        finally:
            watcher.cancel()
            await asyncio.wait([watcher])

    return app


class Notes:
    """A receiver that keeps what it is told, in order."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()

    def on_message(self, message: Message, request: int | None) -> None:
        self.told.put_nowait(("message", json.loads(jsonrpc.encode(message)), request))

    def on_invalid_line(self, line: bytes) -> None:
        self.told.put_nowait(("invalid", line))

    def on_failed(self, request: int, reason: str, *, sent: bool) -> None:
        self.told.put_nowait(("failed", request, reason, sent))

    def on_too_large(self, request: int | None, limit: int) -> None:
        self.told.put_nowait(("too large", request, limit))

    def on_unreadable(self, request: int | None) -> None:
        self.told.put_nowait(("unreadable", request))

    def on_poll(self, request: int, retry_ms: int) -> None:
        pass

    def on_expired(self, request: int | None) -> None:
        self.told.put_nowait(("expired", request))

    def on_closed(self, reason: str) -> None:
        self.told.put_nowait(("closed", reason))

    async def next(self) -> tuple[Any, ...]:
        async with asyncio.timeout(PATIENCE_S):
            return await self.told.get()

    async def message(self) -> tuple[dict[str, Any], int | None]:
        kind, *rest = await self.next()
        assert kind == "message", (kind, rest)
        return rest[0], rest[1]


def request(id: int, method: str, **params: Any) -> Message:
    return Message(id=id, method=method, params=jsonrpc.raw(params))


def notification(method: str, **params: Any) -> Message:
    return Message(method=method, params=jsonrpc.raw(params))


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await event.wait()
