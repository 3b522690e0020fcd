"""One HTTP request of a client and its response, as ASGI brings them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from msgspec import UNSET

from foretool.server.protocol import headers as http_headers
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.headers import EVENTS, JSON, Headers, media_type
from foretool.server.protocol.jsonrpc import BadMessage, Message
from foretool.server.transports.client.event_store import PING, Reader
from foretool.server.transports.client.security import RequestRefused

PING_S: Final = 15.0
"""After this long without data the client gets a comment, so that no proxy closes a quiet stream."""
STALL_S: Final = 60.0
"""A client that reads nothing for this long is given up."""
BODY_S: Final = 30.0
BODY_RATE: Final = 64 * 1024
"""A body has `BODY_S`, and a second more for each of so many bytes that have come."""
_SMALL_BODY: Final = 64 * 1024
"""Bytes of each body that count for no limit of all bodies, so that large ones keep no small one out."""
_LARGE_ANSWER: Final = 64 * 1024

CONNECTION: Final = "foretool.connection"
"""ASGI extension that holds the connection, under the same name."""

_EVENT_HEADERS: Final = (
    (b"content-type", EVENTS.encode()),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)

_JSON_KIND: Final = frozenset({JSON, "application/*", "*/*"})
EVENTS_KIND: Final = frozenset({EVENTS, "text/*", "*/*"})
"""What an Accept header may say to admit JSON, or events."""

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class PeerConnection(Protocol):
    """What a request knows of its connection."""

    transport: asyncio.Transport
    source: str
    """The address of the client; empty on a Unix socket."""
    principal: str | None
    """Who sends the request at hand; None for who has not shown a token."""

    def recognise(self, principal: str) -> None:
        """Record who sends the request at hand."""


class Turns:
    """Lets `most` requests go on in each round of the loop. Principals take turns; each one's keep their order."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._waiting: dict[str | None, deque[asyncio.Future[None]]] = {}
        """By principal; whose turn is next comes first."""

    async def wait(self, principal: str | None) -> None:
        loop = asyncio.get_running_loop()
        if not self._taken:
            loop.call_soon(self._begin_round)
        if self._taken < self._most:
            self._taken += 1
            return
        turn = loop.create_future()
        self._waiting.setdefault(principal, deque()).append(turn)
        await turn

    def _begin_round(self) -> None:
        self._taken = 0
        while self._waiting and self._taken < self._most:
            principal, turns = next(iter(self._waiting.items()))
            del self._waiting[principal]
            turn = turns.popleft()
            if turns:
                self._waiting[principal] = turns
            if not turn.done():
                turn.set_result(None)
                self._taken += 1
        if self._taken:
            asyncio.get_running_loop().call_soon(self._begin_round)


class Bodies:
    """Counts the bytes of all bodies that are being received or answered, and lets small ones overtake large ones."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self._parts, self._large, self._small = Turns(8), Turns(1), Turns(2)

    def turns(self, size: int, *, is_whole: bool) -> Turns:
        """Return the queue in which a body of this size waits; without `is_whole`, that for parts of bodies."""
        return self._parts if not is_whole else self._large if size > _SMALL_BODY else self._small

    def take(self, size: int) -> None:
        if self.taken + size > self.most:
            reason = "too much is being sent at the same time; try again soon"
            raise RequestRefused(503, reason, retry_after="2")
        self.taken += size


class HttpRequest:
    """One HTTP request and its response. `max_body`: bytes of its message. `on_large` is called when a large answer is
    on its way."""

    def __init__(
        self,
        scope: dict[str, Any],
        receive: Receive,
        send: Send,
        max_body: int,
        bodies: Bodies,
        on_large: Callable[[], None],
    ) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.headers = Headers(scope["headers"])
        self.is_gone = False
        """The client has disconnected or was given up."""
        self.connection: PeerConnection = scope["extensions"][CONNECTION][CONNECTION]
        self.receive = receive
        self.send = send
        self._max_body = max_body
        self._bodies = bodies
        self._taken = 0
        self._on_large = on_large
        self._watcher: asyncio.Task[None] | None = None

    # -- what the client sends

    def accepts(self, *kinds: frozenset[str]) -> bool:
        """Return whether the Accept header lists a member of each kind: `_JSON_KIND`, `EVENTS_KIND`."""
        accepted = {media_type(entry) for entry in (self.headers.get("accept") or "").split(",")}
        return all(accepted & kind for kind in kinds)

    async def message(self) -> Message:
        """Read the one message of a POST. Raises `RequestRefused`, `BadMessage`, `TimeoutError`, or `ConnectionError`
        when the client goes before it has sent everything."""
        if (self.headers.get("content-encoding") or "identity").strip().lower() != "identity":
            raise RequestRefused(415, "send the message without Content-Encoding", accept_encoding="identity")
        if (self.headers.get("transfer-encoding") or "chunked").strip().lower() != "chunked":
            raise RequestRefused(501, "the only Transfer-Encoding that is read is chunked")
        if media_type(self.headers.get("content-type")) != JSON:
            raise RequestRefused(415, f"Content-Type must be {JSON}")
        if not self.accepts(_JSON_KIND, EVENTS_KIND):
            raise RequestRefused(406, f"Accept must list both {JSON} and {EVENTS}")
        message = jsonrpc.decode(await self.body(self._max_body))
        if message.params is not UNSET and bytes(memoryview(message.params)[:1]) not in (b"{", b"n"):
            reason = f"params must be an object in a request of {message.method}"
            raise BadMessage(jsonrpc.INVALID_REQUEST, reason, message.id if message.id is not UNSET else None)
        return message

    async def body(self, largest: int) -> bytes:
        """Read the whole body. Raises `RequestRefused` for one of more than `largest` bytes, `TimeoutError` for one
        that does not come, and `ConnectionError` when the client goes before it has sent everything."""
        length = self.headers.get("content-length") or ""
        _check_size(int(length[:19]) if length.isdecimal() else 0, largest)
        parts, size = [], 0
        async with asyncio.timeout(BODY_S) as limit:
            end = limit.when() or 0.0
            while True:
                event = await self.receive()
                if event["type"] != "http.request":
                    raise ConnectionError
                parts.append(event["body"])
                size += len(event["body"])
                _check_size(size, largest)
                self._count(size)
                if size > _SMALL_BODY or not event["more_body"]:
                    await self._bodies.turns(size, is_whole=not event["more_body"]).wait(self.connection.principal)
                if not event["more_body"]:
                    return b"".join(parts)
                limit.reschedule(end + size / BODY_RATE)

    def _count(self, size: int) -> None:
        # Only what has come counts: a length costs its sender nothing.
        if size - _SMALL_BODY > self._taken:
            self._bodies.take(size - _SMALL_BODY - self._taken)
            self._taken = size - _SMALL_BODY

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` once the client is gone. To be called after the body was read."""
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch(wake))

    async def _watch(self, wake: Callable[[], None]) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        wake()

    # -- what the client gets

    async def reply(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Answer with a body, which is JSON unless `headers` has a `content-type`."""
        lines = [(b"content-length", str(len(body)).encode())]
        if body and "content-type" not in (headers or {}):
            lines.append((b"content-type", JSON.encode()))
        lines += [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        await self.send({"type": "http.response.start", "status": status, "headers": lines})
        await self._write(body, more=False)

    async def send_events(self, reader: Reader, first: bytes = b"", session: str | None = None) -> None:
        """Answer with a stream of events, until the stream ends or the client goes. `first` goes out before them,
        `session` in a header."""
        lines = [*_EVENT_HEADERS, *([(http_headers.SESSION.encode(), session.encode())] if session else [])]
        await self.send({"type": "http.response.start", "status": 200, "headers": lines})
        data = first
        while not self.is_gone:
            data += reader.take()
            if data or reader.is_over:
                await self._write(data, more=not reader.is_over)
                data = b""
                if reader.is_over:
                    return
            else:
                self.watch(reader.wake)
                if not await reader.wait(PING_S):
                    data = PING

    async def _write(self, data: bytes, *, more: bool) -> None:
        try:
            async with asyncio.timeout(STALL_S):
                await self.send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            self.abort()
        if len(data) > _LARGE_ANSWER:
            self._on_large()

    def abort(self) -> None:
        """Break the connection, and drop whatever waits to be written."""
        self.is_gone = True
        self.connection.transport.abort()

    def close(self) -> None:
        self._bodies.taken -= self._taken
        self._taken = 0
        if self._watcher is not None:
            self._watcher.cancel()
            # The last frame of the task points back at us: without this, every call would leave garbage to collect.
            self._watcher = None


def _check_size(size: int, largest: int) -> None:
    if size > largest:
        raise RequestRefused(413, f"the message is over {largest} bytes")
