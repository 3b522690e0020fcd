"""Clients over streamable HTTP, both eras, on `/mcp` and `/mcp/<profile>`: a raw ASGI application under uvicorn.

A request without `MCP-Protocol-Version`, or with a version that has a handshake, belongs to the legacy era. Every
other version belongs to the modern era, which accepts or refuses it.
"""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

import uvicorn

from foretool.server.config.addresses import Address
from foretool.server.config.errors import name_some
from foretool.server.protocol import headers as http_headers
from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import BadMessage
from foretool.server.transports.client import access
from foretool.server.transports.client.access import Identity
from foretool.server.transports.client.base import Fronts, SessionCarrier
from foretool.server.transports.client.connections import Connections
from foretool.server.transports.client.door import Door
from foretool.server.transports.client.event_store import EventStore, Memory, Stream
from foretool.server.transports.client.http_legacy import LegacyClients
from foretool.server.transports.client.http_modern import InputSchema, ModernClients
from foretool.server.transports.client.http_request import Bodies, HttpRequest, Receive, Send
from foretool.server.transports.client.http_rules import HttpRules
from foretool.server.transports.client.listener import BACKLOG, Listener
from foretool.server.transports.client.security import RequestRefused
from foretool.server.transports.guard import Guard

_ROOT: Final = "/mcp"
_PAGE_ROOT: Final = "/ui/"
_CALLBACK: Final = "/connect/callback"
_PAGE_HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}
_LISTEN: Final = "subscriptions/listen"
_SWEEP_S: Final = 1.0
"""Pause between two looks for idle sessions and for connections that waste our time."""
_ACCEPTS: Final = 16
"""Most connections that are taken in one round of the loop, so that a flood of them holds up nobody."""
_SHUTDOWN_S: Final = 2
_NAMED: Final = 5
"""Endpoints that are named at most to who asked for another one."""
_ANY_PORT: Final = Address()
_KEEP_ALIVE_S: Final = 65
"""Longer than clients keep an unused connection, so that none sends into one that is being closed."""


Metrics = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Writes the answer to `/metrics` and its Content-Type, for an Accept header."""
ComeBack = Callable[[str], Awaitable[tuple[int, bytes] | None]]
"""Takes the query of a browser that comes back; returns the status and the page, None if it is not served."""
Page = Callable[[Door, HttpRequest], Awaitable[None]]
"""Answers the requests of browsers below `/ui`; whom it serves, the door says."""


class HttpServer:
    """Serves HTTP clients on one address.

    `input_schema(profile, tool)`: the schema of an exposed tool if it has `x-mcp-header` annotations, else None.
    """

    def __init__(
        self,
        fronts: Fronts,
        rules: HttpRules,
        address: Address = _ANY_PORT,
        input_schema: InputSchema | None = None,
        page: Page | None = None,
        is_ready: Callable[[], bool] = lambda: True,
        metrics: Metrics | None = None,
        request_type: type[HttpRequest] = HttpRequest,
        sharing: SessionCarrier | None = None,
        come_back: ComeBack | None = None,
        guard: Guard | None = None,
    ) -> None:
        """`is_ready`: whether everything works that a client needs; `/readyz` tells it to whoever supervises.
        `metrics`: None for no `/metrics`. `sharing`: None for one process alone. `come_back`: answers a
        browser that comes back from the authorization server of a server. `guard`: round what goes on in the
        background; None for one of its own."""
        self.address = address
        """Once `ready` is set, with the actual port."""
        self.door = Door(rules)
        self.ready = asyncio.Event()
        """Set when clients can connect."""
        self.memory = Memory(self._make_room)
        self.legacy = LegacyClients(fronts, self._admit, rules.limits, rules.access.shares, self.memory, sharing)
        self._sharing = sharing
        self.modern = ModernClients(fronts, self._admit, input_schema, self.memory)
        self.connections = Connections(rules.limits, rules.access.shares)
        self._bodies = Bodies(rules.limits.max_bodies)
        self._streams: dict[HttpRequest, float] = {}
        """Streams that carry no answer, each with when the token ends that began it."""
        self._page = page
        self._is_ready = is_ready
        self._metrics = metrics
        self._request_type = request_type
        self._come_back = come_back
        self._guard = guard or Guard()
        self._server: _Server | None = None
        self._is_stopping = self._is_draining = False
        self._stopped = asyncio.Event()

    @property
    def rules(self) -> HttpRules:
        return self.door.rules

    def follow(self, rules: HttpRules) -> None:
        """Put other rules in force: whoever they no longer let in loses sessions, streams and calls at once."""
        self.door.follow(rules)
        self.legacy.set_limits(rules.limits, rules.access.shares)
        self.connections.set_limits(rules.limits, rules.access.shares)
        self._bodies.most = rules.limits.max_bodies
        self.legacy.close_refused(rules.access.opens)
        self.modern.close_refused(rules.access.opens)

    async def serve(self) -> None:
        """Serve until `stop` is called or the task is cancelled. Raises `BindError` when the address is not free."""
        listener = Listener(self.address)
        self.address = listener.address
        config = uvicorn.Config(
            self.app,
            http=cast("Any", self.connections.protocol()),
            interface="asgi3",
            proxy_headers=False,
            ws="none",
            lifespan="off",
            # uvicorn must write nothing to stdout, which belongs to the protocol.
            log_config=None,
            # A warning for each odd request would let strangers fill the log.
            log_level="error",
            backlog=_ACCEPTS,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
        self._server = _Server(config, self.ready)
        self._server.should_exit = self._is_stopping
        tasks = [asyncio.create_task(self._guard.keep("sweep", self._sweep))]
        if self._sharing is not None:
            tasks.append(asyncio.create_task(self._guard.keep("replicas", self._sharing.run)))
        try:
            await self._server.serve([listener.socket])
        finally:
            for task in tasks:
                task.cancel()
            listener.close()
            self.close_clients()
            self._stopped.set()

    def drain(self) -> None:
        """Have a balancer send clients elsewhere: `/readyz` says so, and each connection ends with its next answer.
        Requests are served as before, since who waits for an answer may still be asked something."""
        self._is_draining = True

    async def stop(self) -> None:
        """End every stream and session; returns when the port is free."""
        self._is_stopping = True
        if self._server is None:
            return
        self._server.should_exit = True
        self.close_clients()
        await self._stopped.wait()

    def close_clients(self) -> None:
        if self._sharing is not None:
            self._sharing.close()
        self.legacy.close()
        self.modern.close()

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            limits = self.rules.limits
            await asyncio.sleep(min(_SWEEP_S, limits.session_idle_s or _SWEEP_S, limits.header_s / 4))
            now, attempt = time.monotonic(), self._guard.attempt
            attempt("connections", partial(self.connections.sweep, loop.time()))
            attempt("sessions", partial(self.legacy.expire, now))
            attempt("modern sessions", partial(self.modern.expire, now, limits.session_idle_s))
            attempt("guesses", partial(self.door.forget, now))
            attempt("streams", partial(self._end_streams, time.time()))
            attempt("events", self.memory.forget_read)

    def _make_room(self) -> None:
        """Drop what clients have not read, or might read again: most of those for whom most is kept."""
        kept: list[tuple[str, EventStore | Stream]] = [
            *((session.principal, session.events) for session in self.legacy.sessions.values()),
            *((principal, stream) for stream, principal in self.modern.open.items()),
        ]
        by_principal: dict[str, int] = {}
        for principal, holder in kept:
            by_principal[principal] = by_principal.get(principal, 0) + holder.size
        kept.sort(key=lambda each: (by_principal[each[0]], each[1].size))
        while self.memory.is_full and kept:
            if not kept[-1][1].drop_oldest():
                kept.pop()

    async def app(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """The ASGI application: serves one HTTP request."""
        send = _closing(send) if self._is_draining else send
        largest = self.rules.limits.max_body
        request = self._request_type(scope, receive, send, largest, self._bodies, self.connections.check_unread)
        try:
            if self._page is not None and (request.path + "/").startswith(_PAGE_ROOT):
                await self._page(self.door, request)
            else:
                await self._route(request)
        except RequestRefused as error:
            body = jsonrpc.failure(None, jsonrpc.error_object(jsonrpc.INVALID_REQUEST, str(error)))
            await request.reply(error.status, body, error.headers)
        except BadMessage as error:
            await request.reply(400, jsonrpc.failure(error.id, jsonrpc.error_object(error.code, str(error))))
        except TimeoutError:
            await request.reply(408)
        except ConnectionError:
            pass  # the client went before it had sent its message
        finally:
            request.close()
            if request.is_gone:
                # Let uvicorn see the broken connection before it finds a response without an end.
                await asyncio.sleep(0)

    async def _route(self, request: HttpRequest) -> None:
        self.rules.guards.check(request.headers)
        if request.path in ("/health", "/healthz"):
            await request.reply(200, b'{"status":"ok"}')
            return
        if request.path == "/readyz":
            ready = self._is_ready() and not (self._is_stopping or self._is_draining)
            await request.reply(200 if ready else 503, b'{"status":"ok"}' if ready else b'{"status":"not ready"}')
            return
        if (request.path + "/").startswith(access.ROOT + "/") and self.rules.access.issuer is not None:
            # Also below profiles, and the same for each: who has no token learns of none.
            entry = self.rules.access.issuer.entry
            await request.reply(200, access.metadata(entry), {"cache-control": "max-age=300"})
            return
        if request.path == _CALLBACK and request.method == "GET" and self._come_back is not None:
            answer = await self._come_back(request.query)
            if answer is not None:
                await request.reply(*answer, _PAGE_HEADERS)
                return
        # Nobody without a token learns which paths exist.
        identity = await self.door.identify(request, request.headers.get("authorization") or "")
        if request.path == "/metrics" and self._metrics is not None:
            await self._tell_metrics(request, identity, self._metrics)
            return
        profile = self._profile(request.path, identity)
        version = request.headers.get(http_headers.VERSION)
        if version is None or version in versions.LEGACY_VERSIONS:
            await self._while_valid(request, identity, self.legacy.serve(request, profile, identity))
        elif request.method != "POST":
            raise RequestRefused(405, f"{version} knows POST only", allow="POST")
        else:
            await self._while_valid(request, identity, self.modern.serve(request, profile, identity))

    async def _while_valid(self, request: HttpRequest, identity: Identity, answer: Awaitable[None]) -> None:
        """Answer a request. A stream that only listens ends with its token; the answer to a call is still sent."""
        listens = request.method == "GET" or request.headers.get("mcp-method") == _LISTEN
        if listens and identity.expires_at != math.inf:
            self._streams[request] = identity.expires_at
        try:
            await answer
        finally:
            self._streams.pop(request, None)

    def _end_streams(self, now: float) -> None:
        """End the streams whose tokens have ended. `now`: seconds of the system clock."""
        for request in [each for each, ends_at in self._streams.items() if ends_at < now]:
            request.abort()

    async def _tell_metrics(self, request: HttpRequest, identity: Identity, write: Metrics) -> None:
        """Answer `/metrics`. It tells of every server, so the token has to open every profile."""
        if request.method != "GET":
            raise RequestRefused(405, "/metrics knows GET only", allow="GET")
        if identity.profiles < self.rules.access.profiles:
            raise RequestRefused(403, "/metrics tells of every server: use a token that opens every profile")
        body, kind = await write(request.headers.get("accept") or "")
        await request.reply(200, body, {"content-type": kind})

    def _profile(self, path: str, identity: Identity) -> str:
        root, _, name = path.removesuffix("/").removeprefix(_ROOT).partition("/")
        is_endpoint = not root and path.startswith(_ROOT)
        if is_endpoint and name not in identity.profiles and (refusal := self.rules.access.refusal(identity, name)):
            raise refusal
        # A profile that this token does not open gets the same answer as one that does not exist.
        if not is_endpoint or name not in identity.profiles:
            own = sorted(f"{_ROOT}/{each}".removesuffix("/") for each in identity.profiles)
            opens = name_some(own, _NAMED) if own else "none"
            raise RequestRefused(
                404, f"nothing is served here for this token; the MCP endpoints that it opens: {opens}"
            )
        return name

    def _admit(self, identity: Identity, profile: str) -> None:
        """Raise `RequestRefused` if the rules have changed since a request came in, while its body was on the way."""
        if not self.rules.access.opens(identity, profile):
            raise RequestRefused(
                401, "the token of this request is no longer valid", www_authenticate='Bearer realm="foretool"'
            )


class _Server(uvicorn.Server):
    """Leaves signals to the program, and sets an event when it listens."""

    def __init__(self, config: uvicorn.Config, ready: asyncio.Event) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # what one round does not take must be able to wait
        self._ready.set()


def _closing(send: Send) -> Send:
    """Return what sends a response after which its connection ends."""

    async def send_last(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await send(message)

    return send_last
