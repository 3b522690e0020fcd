"""Clients over streamable HTTP, both eras, on `/mcp` and `/mcp/<profile>`.

A raw ASGI application under uvicorn. A request without `MCP-Protocol-Version`, or with a version of the handshake, is
of the legacy era: `initialize` opens a session, every reply comes as server-sent events that can be resumed, and a
client that disconnects has cancelled nothing. Any other version is the modern era's to accept or refuse: each request
stands alone, is checked against its headers, is answered with JSON if the reply is the first thing there is to say,
and is cancelled when its client goes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from msgspec import UNSET
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from foretool.server.protocol import headers as http_headers
from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.headers import Headers
from foretool.server.protocol.jsonrpc import BadMessage, Message, RpcError
from foretool.server.transports.client.base import Front, Fronts
from foretool.server.transports.client.event_store import PING, EventStore, Reader, Stream
from foretool.server.transports.client.security import Guards, Refused, is_loopback
from foretool.server.transports.pipes import BUFFER

ROOT: Final = "/mcp"
PING_S: Final = 15.0
"""After this long without a word the client gets a comment, so that nobody on the way closes a quiet stream."""
STALL_S: Final = 60.0
"""A client that takes nothing for this long is gone."""
BODY_S: Final = 30.0
"""Longest wait for the whole body of a request."""
RETRY_MS: Final = 1000
"""When a client shall come back to a stream that ended early."""
SWEEP_S: Final = 5.0
HEADER_BYTES: Final = 64 * 1024
SHUTDOWN_S: Final = 2
KEEP_ALIVE_S: Final = 65
"""Longer than clients keep a connection they do not use, so none sends into one that is being closed."""

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
EVENT_HEADERS: Final = (
    (b"content-type", EVENTS.encode()),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)

STATUSES: Final[Mapping[int, int]] = {
    jsonrpc.PARSE_ERROR: 400,
    jsonrpc.INVALID_REQUEST: 400,
    jsonrpc.INVALID_PARAMS: 400,
    jsonrpc.HEADER_MISMATCH: 400,
    jsonrpc.MISSING_CAPABILITY: 400,
    jsonrpc.UNSUPPORTED_VERSION: 400,
    jsonrpc.METHOD_NOT_FOUND: 404,
}
"""HTTP status of a modern reply by its error code; 200 for any other."""

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
InputSchema = Callable[[str, str], Any]

log = logging.getLogger(__name__)


class EdgeError(Exception):
    """The edge cannot be opened as configured. One line: what, where, the way out."""


class Wire:
    """One HTTP request and its response."""

    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = Headers(scope["headers"])
        self.is_gone = False
        """The client has disconnected, or was given up."""
        self._transport: asyncio.Transport = scope["extensions"][_TRANSPORT]["transport"]
        self._receive = receive
        self._send = send
        self._watcher: asyncio.Task[None] | None = None

    async def body(self, limit: int) -> bytes:
        """Raises `Refused`, and `ConnectionError` when the client goes meanwhile."""
        parts, size = [], 0
        length = self.headers.get("content-length") or ""
        if length.isdecimal() and int(length[:19]) > limit:
            raise _too_large(limit)
        async with asyncio.timeout(BODY_S):
            while True:
                event = await self._receive()
                if event["type"] != "http.request":
                    raise ConnectionError
                parts.append(event["body"])
                size += len(event["body"])
                if size > limit:
                    raise _too_large(limit)
                if not event["more_body"]:
                    return b"".join(parts)

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` once the client is gone. Only after the body."""
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch(wake))

    async def _watch(self, wake: Callable[[], None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        wake()

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            # Its last frame points back at us: without this, every call would leave garbage to collect.
            self._watcher = None

    async def reply(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        lines = [(b"content-length", str(len(body)).encode())]
        if body:
            lines.append((b"content-type", JSON.encode()))
        lines += [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        await self._send({"type": "http.response.start", "status": status, "headers": lines})
        await self.write(body, more=False)

    async def start_events(self, session: str | None = None) -> None:
        lines = [*EVENT_HEADERS, *([(http_headers.SESSION.encode(), session.encode())] if session else [])]
        await self._send({"type": "http.response.start", "status": 200, "headers": lines})

    async def write(self, data: bytes, *, more: bool) -> None:
        try:
            async with asyncio.timeout(STALL_S):
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Break the connection, and with it whatever waits to be written."""
        self.is_gone = True
        self._transport.abort()


class Session:
    """A legacy client between `initialize` and `DELETE`."""

    def __init__(self, principal: str, profile: str) -> None:
        self.id = secrets.token_hex(16)
        self.principal = principal
        self.profile = profile
        self.shelf = EventStore()
        self.front: Front | None = None
        self.responses = 0
        """HTTP requests being answered; a session in use is not idle."""
        self.used_at = time.monotonic()

    def note_version(self, reply: bytes) -> None:
        """Take in which version was agreed on."""
        try:
            result = jsonrpc.fields(jsonrpc.fields(reply).get("result", UNSET))
            version = jsonrpc.text(result.get("protocolVersion")) or ""
        except ValueError:
            return
        self.shelf.primes = version >= "2025-11-25"

    def close(self) -> None:
        if self.front is not None:
            self.front.close()
        self.shelf.close()


class HttpEdge:
    """See the module.

    `port` 0 takes a free one. `profiles` tells whether a profile of that name exists. `max_body`: bytes of one message.
    `input_schema(profile, tool)`: the schema of an exposed tool if it has `x-mcp-header` annotations, else None.
    Raises `EdgeError` for an address beyond this machine without a token.
    """

    def __init__(
        self,
        fronts: Fronts,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        max_sessions: int = 1000,
        session_idle_s: float = 1800.0,
        max_body: int = 4 * 1024 * 1024,
        profiles: Callable[[str], bool] = lambda name: name == "",
        input_schema: InputSchema | None = None,
    ) -> None:
        if not is_loopback(host) and not token:
            raise EdgeError(f"bind {host!r} can be reached from other machines; set token, or bind 127.0.0.1")
        self.host = host
        self.port = port
        self.ready = asyncio.Event()
        """Set when clients can connect; `port` is the actual one then."""
        self._fronts = fronts
        self._guards = Guards(token, [*allowed_hosts, host], allowed_origins)
        self._max_sessions = max_sessions
        self._session_idle_s = session_idle_s
        self._max_body = max_body
        self._profiles = profiles
        self._input_schema = input_schema
        self._sessions: dict[str, Session] = {}
        self._modern: dict[tuple[str, str], Front] = {}
        self._open: set[Stream] = set()
        """Modern requests not answered yet."""
        self._server: _Server | None = None
        self._is_stopping = False
        self._stopped = asyncio.Event()

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    # -- life

    async def serve(self) -> None:
        """Until `stop`, or cancelled. Raises `EdgeError` when the address cannot be had."""
        listener = self._bind()
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(
            self._app,
            http=_Protocol,
            interface="asgi3",
            proxy_headers=False,
            ws="none",
            lifespan="off",
            # Nothing of uvicorn's may reach stdout, which belongs to the protocol where both edges run.
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
        self._server = _Server(config, self.ready)
        self._server.should_exit = self._is_stopping
        sweeper = asyncio.create_task(self._sweep())
        try:
            await self._server.serve([listener])
        finally:
            sweeper.cancel()
            listener.close()
            self._close_clients()
            self._stopped.set()

    async def stop(self) -> None:
        """End every stream and session; returns when the port is free."""
        self._is_stopping = True
        if self._server is None:
            return
        self._server.should_exit = True
        self._close_clients()
        await self._stopped.wait()

    def _bind(self) -> socket.socket:
        host = self.host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # asyncio switches Nagle's delay off only where the protocol is named, and it costs 40 ms a reply.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, self.port))
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            reason = f"cannot listen on {self.host}:{self.port}: {error.strerror}; choose another address in bind"
            raise EdgeError(reason) from None
        return listener

    def _close_clients(self) -> None:
        for session in list(self._sessions.values()):
            self._drop(session)
        fronts, self._modern = list(self._modern.values()), {}
        for front in fronts:
            front.close()
        for stream in list(self._open):
            stream.end()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_S, self._session_idle_s))
            self.expire(time.monotonic())

    def expire(self, now: float) -> None:
        """Close the sessions that nobody has used for too long."""
        for session in list(self._sessions.values()):
            if not session.responses and now - session.used_at > self._session_idle_s:
                self._drop(session)

    def _drop(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            session.close()

    # -- requests

    async def _app(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        wire = Wire(scope, receive, send)
        try:
            await self._route(wire)
        except Refused as error:
            body = jsonrpc.failure(None, jsonrpc.error_object(jsonrpc.INVALID_REQUEST, str(error)))
            await wire.reply(error.status, body, error.headers)
        except BadMessage as error:
            await wire.reply(400, jsonrpc.failure(error.id, jsonrpc.error_object(error.code, str(error))))
        except TimeoutError:
            await wire.reply(408)
        except ConnectionError:
            pass  # gone before it had asked anything
        finally:
            wire.close()
            if wire.is_gone:
                # Let the server see the broken connection before it finds a response without an end.
                await asyncio.sleep(0)

    async def _route(self, wire: Wire) -> None:
        if wire.path == "/health":
            await wire.reply(200, b'{"status":"ok"}')
            return
        profile = self._profile(wire.path)
        principal = self._guards.admit(wire.headers)
        version = wire.headers.get(http_headers.VERSION)
        if version is None or version in versions.LEGACY_VERSIONS:
            await self._route_legacy(wire, profile, principal)
        elif wire.method != "POST":
            raise Refused(405, f"{version} knows POST only", allow="POST")
        else:
            await self._post_modern(wire, profile, principal)

    def _profile(self, path: str) -> str:
        root, _, name = path.removesuffix("/").removeprefix(ROOT).partition("/")
        if root or not path.startswith(ROOT):
            raise Refused(404, f"nothing is served here; the MCP endpoint is {ROOT}")
        if not self._profiles(name):
            raise Refused(404, f"there is no profile {name!r}; see profiles in the config, or use {ROOT}")
        return name

    async def _message(self, wire: Wire) -> Message:
        """The one message of a POST. Raises `Refused` or `BadMessage`."""
        kind = (wire.headers.get("content-type") or "").partition(";")[0].strip().lower()
        if kind != JSON:
            raise Refused(415, f"Content-Type must be {JSON}")
        accepted = _accepted(wire)
        if not (accepted & {JSON, "application/*", "*/*"} and accepted & {EVENTS, "text/*", "*/*"}):
            raise Refused(406, f"Accept must list both {JSON} and {EVENTS}")
        message = jsonrpc.decode(await wire.body(self._max_body))
        if message.params is not UNSET and bytes(memoryview(message.params)[:1]) not in (b"{", b"n"):
            reason = f"params must be an object in a request of {message.method}"
            raise BadMessage(jsonrpc.INVALID_REQUEST, reason, message.id if message.id is not UNSET else None)
        return message

    # -- the modern era

    async def _post_modern(self, wire: Wire, profile: str, principal: str) -> None:
        message = await self._message(wire)
        if message.method is UNSET:
            raise Refused(400, "a client has nothing to reply to in this revision; send requests")
        ident = None if message.id is UNSET else message.id
        try:
            if ident is None:
                # Acknowledged and dropped, as in the SDK: by ids that clients choose, one could cancel another's work.
                http_headers.check_version(wire.headers)
                await wire.reply(202)
                return
            http_headers.check_request(message, wire.headers)
            self._check_arguments(message, wire.headers, profile)
        except RpcError as error:
            data = jsonrpc.error_object(error.code, str(error), error.data)
            await wire.reply(STATUSES.get(error.code, 200), jsonrpc.failure(ident, data))
            return
        await self._answer_modern(wire, message, self._front(profile, principal))

    def _check_arguments(self, message: Message, headers: Headers, profile: str) -> None:
        if message.method != "tools/call" or self._input_schema is None:
            return
        params = jsonrpc.fields(message.params)
        schema = self._input_schema(profile, jsonrpc.text(params.get("name")) or "")
        if schema is not None:
            arguments = jsonrpc.plain(params["arguments"]) if "arguments" in params else {}
            http_headers.check_params(schema, arguments, headers)

    def _front(self, profile: str, principal: str) -> Front:
        key = (principal, profile)
        if key not in self._modern:
            self._modern[key] = self._fronts.open("modern", "http", _Nowhere(), profile, principal)
        return self._modern[key]

    async def _answer_modern(self, wire: Wire, message: Message, front: Front) -> None:
        stream = Stream("")
        reader = stream.attach(wire.abort)
        self._open.add(stream)
        try:
            front.receive(message, stream)
            if not stream.is_finished and stream.is_read:
                wire.watch(reader.wake)
                await reader.wait(PING_S)
            reply = stream.take_only()
            if reply is not None:
                await wire.reply(STATUSES.get(stream.code or 0, 200), reply)
            elif not wire.is_gone:
                await wire.start_events()
                await _pump(wire, reader)
        finally:
            self._open.discard(stream)
            if not stream.is_finished:
                front.cancel(stream, "the client closed the stream of the request")
                stream.end()
            stream.detach(reader)

    # -- the legacy era

    async def _route_legacy(self, wire: Wire, profile: str, principal: str) -> None:
        if wire.method == "POST":
            await self._post_legacy(wire, profile, principal)
        elif wire.method == "GET":
            await self._get(wire, profile, principal)
        elif wire.method == "DELETE":
            self._drop(self._session(wire, profile, principal))
            await wire.reply(200)
        else:
            raise Refused(405, f"{wire.method} means nothing here", allow="GET, POST, DELETE")

    def _session(self, wire: Wire, profile: str, principal: str) -> Session:
        ident = wire.headers.get(http_headers.SESSION)
        if ident is None:
            raise Refused(400, "Mcp-Session-Id is missing; send initialize first")
        session = self._sessions.get(ident)
        # Somebody else's session is answered as none at all.
        if session is None or session.principal != principal or session.profile != profile:
            raise Refused(404, "Session not found; send initialize again")
        session.used_at = time.monotonic()
        return session

    async def _post_legacy(self, wire: Wire, profile: str, principal: str) -> None:
        message = await self._message(wire)
        is_new = wire.headers.get(http_headers.SESSION) is None
        if is_new and message.method == "initialize" and message.id is not UNSET:
            await self._initialize(wire, message, self._begin(profile, principal))
            return
        session = self._session(wire, profile, principal)
        assert session.front is not None
        if message.method is UNSET or message.id is UNSET:
            session.front.receive(message, session.shelf.standalone)
            await wire.reply(202)
            return
        stream = session.shelf.new()
        try:
            session.front.receive(message, stream)
        except BaseException:
            stream.end()  # or the session would keep it for ever
            raise
        await self._send(wire, session, stream)

    def _begin(self, profile: str, principal: str) -> Session:
        if len(self._sessions) >= self._max_sessions:
            reason = f"all {self._max_sessions} sessions are taken; end some with DELETE, or try again later"
            raise Refused(503, reason, retry_after="60")
        session = Session(principal, profile)
        session.front = self._fronts.open("legacy", "http", session.shelf.standalone, profile, principal)
        self._sessions[session.id] = session
        return session

    async def _initialize(self, wire: Wire, message: Message, session: Session) -> None:
        """The reply decides whether there is a session, and of which version, before the response begins."""
        assert session.front is not None
        stream = session.shelf.new()
        reader = stream.attach(wire.abort)
        agreed = False
        try:
            session.front.receive(message, stream)
            wire.watch(reader.wake)
            while not stream.is_finished and not wire.is_gone:
                await reader.wait(PING_S)
            agreed = stream.is_finished and stream.code is None and not wire.is_gone
            if not agreed:
                self._drop(session)
            elif (reply := stream.latest) is not None:
                session.note_version(reply)
        finally:
            stream.detach(reader)
        if not wire.is_gone:
            await self._send(wire, session, stream, named=agreed)

    async def _get(self, wire: Wire, profile: str, principal: str) -> None:
        if not _accepted(wire) & {EVENTS, "text/*", "*/*"}:
            raise Refused(406, f"Accept must list {EVENTS}")
        session = self._session(wire, profile, principal)
        last = wire.headers.get("last-event-id")
        stream = session.shelf.standalone if last is None else session.shelf.resume(last)
        if stream is None:
            raise Refused(400, "the stream of this Last-Event-ID is not kept any more; send the request again")
        await self._send(wire, session, stream)

    async def _send(self, wire: Wire, session: Session, stream: Stream, *, named: bool = True) -> None:
        """Carry a stream in a response, as far as it goes."""
        session.responses += 1
        reader = stream.attach(wire.abort)
        try:
            await wire.start_events(session.id if named else None)
            await _pump(wire, reader, stream.priming(RETRY_MS) if session.shelf.primes else b"")
        finally:
            stream.detach(reader)
            session.responses -= 1
            session.used_at = time.monotonic()


async def _pump(wire: Wire, reader: Reader, first: bytes = b"") -> None:
    """Write what the reader gives until the stream or the client ends."""
    data = first
    while not wire.is_gone:
        data += reader.take()
        if data or reader.is_over:
            await wire.write(data, more=not reader.is_over)
            data = b""
            if reader.is_over:
                return
        else:
            wire.watch(reader.wake)
            if not await reader.wait(PING_S):
                data = PING


def _accepted(wire: Wire) -> set[str]:
    accept = wire.headers.get("accept") or ""
    return {entry.partition(";")[0].strip().lower() for entry in accept.split(",")}


def _too_large(limit: int) -> Refused:
    return Refused(413, f"the message is over {limit} bytes")


class _Nowhere:
    """Where a modern client gets what belongs to no request: it asks for that with `subscriptions/listen`."""

    def send(self, data: bytes) -> None:
        pass

    def finish(self, data: bytes, code: int | None) -> None:
        pass

    def poll(self) -> None:
        pass

    def end(self) -> None:
        pass


_TRANSPORT: Final = "foretool.transport"


class _Protocol(HttpToolsProtocol, asyncio.BufferedProtocol):
    """Hands the connection to the application, bounds the header lines, which uvicorn does not, and reads into the
    buffer of all (`server.pipes`)."""

    _header_bytes = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        return BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(BUFFER[:nbytes]))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes = 0
        self.scope["extensions"] = {_TRANSPORT: {"transport": self.transport}}

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > HEADER_BYTES:
            self.transport.abort()
        else:
            super().on_header(name, value)


class _Server(uvicorn.Server):
    """Leaves signals to the program, and tells when it listens."""

    def __init__(self, config: uvicorn.Config, ready: asyncio.Event) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()
