"""Clients over streamable HTTP, both eras, on `/mcp` and `/mcp/<profile>`: a raw ASGI application under uvicorn.

A request without `MCP-Protocol-Version`, or with a version that has a handshake, belongs to the legacy era. Every
other version belongs to the modern era, which accepts or refuses it.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from foretool.server.config.errors import ConfigError
from foretool.server.protocol import headers as http_headers
from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import BadMessage
from foretool.server.transports.client.base import Fronts
from foretool.server.transports.client.http_legacy import LegacyClients
from foretool.server.transports.client.http_modern import InputSchema, ModernClients
from foretool.server.transports.client.http_request import TRANSPORT, HttpRequest, Receive, Send
from foretool.server.transports.client.security import Guards, Refused, is_loopback
from foretool.server.transports.pipes import BUFFER

ROOT: Final = "/mcp"
SWEEP_S: Final = 5.0
"""Pause between two looks for idle sessions."""
HEADER_BYTES: Final = 64 * 1024
"""Most bytes of the header lines of one request."""
SHUTDOWN_S: Final = 2
KEEP_ALIVE_S: Final = 65
"""Longer than clients keep an unused connection, so that none sends into one that is being closed."""


class BindError(ConfigError):
    """The address cannot be served as configured. The message is one line: what, where, the way out."""


class HttpServer:
    """Serves HTTP clients on one address.

    `port` 0 takes a free one. `profiles` tells whether a profile of that name exists. `max_body`: bytes of one message.
    `input_schema(profile, tool)`: the schema of an exposed tool if it has `x-mcp-header` annotations, else None.
    Raises `BindError` for an address beyond this machine without a token.
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
            raise BindError(f"bind {host!r} can be reached from other machines; set token, or bind 127.0.0.1")
        self.host = host
        self.port = port
        self.ready = asyncio.Event()
        """Set when clients can connect; from then on `port` is the actual one."""
        self.legacy = LegacyClients(fronts, max_sessions, session_idle_s)
        self.modern = ModernClients(fronts, input_schema)
        self._guards = Guards(token, [*allowed_hosts, host], allowed_origins)
        self._sweep_s = min(SWEEP_S, session_idle_s)
        self._max_body = max_body
        self._profiles = profiles
        self._server: _Server | None = None
        self._is_stopping = False
        self._stopped = asyncio.Event()

    async def serve(self) -> None:
        """Serve until `stop` is called or the task is cancelled. Raises `BindError` when the address is not free."""
        listener = self._bind()
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(
            self.app,
            http=_Protocol,
            interface="asgi3",
            proxy_headers=False,
            ws="none",
            lifespan="off",
            # uvicorn must write nothing to stdout, which belongs to the protocol.
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
            self.close_clients()
            self._stopped.set()

    async def stop(self) -> None:
        """End every stream and session; returns when the port is free."""
        self._is_stopping = True
        if self._server is None:
            return
        self._server.should_exit = True
        self.close_clients()
        await self._stopped.wait()

    def _bind(self) -> socket.socket:
        host = self.host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # asyncio switches Nagle's delay off only where the protocol is named; the delay costs 40 ms a reply.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, self.port))
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            reason = f"cannot listen on {self.host}:{self.port}: {error.strerror}; choose another address in bind"
            raise BindError(reason) from None
        return listener

    def close_clients(self) -> None:
        self.legacy.close()
        self.modern.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_s)
            self.legacy.expire(time.monotonic())

    async def app(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one HTTP request; this is the ASGI application."""
        request = HttpRequest(scope, receive, send, self._max_body)
        try:
            await self._route(request)
        except Refused as error:
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
        if request.path == "/health":
            await request.reply(200, b'{"status":"ok"}')
            return
        profile = self._profile(request.path)
        principal = self._guards.admit(request.headers)
        version = request.headers.get(http_headers.VERSION)
        if version is None or version in versions.LEGACY_VERSIONS:
            await self.legacy.serve(request, profile, principal)
        elif request.method != "POST":
            raise Refused(405, f"{version} knows POST only", allow="POST")
        else:
            await self.modern.serve(request, profile, principal)

    def _profile(self, path: str) -> str:
        root, _, name = path.removesuffix("/").removeprefix(ROOT).partition("/")
        if root or not path.startswith(ROOT):
            raise Refused(404, f"nothing is served here; the MCP endpoint is {ROOT}")
        if not self._profiles(name):
            raise Refused(404, f"there is no profile {name!r}; see profiles in the config, or use {ROOT}")
        return name


class _Protocol(HttpToolsProtocol, asyncio.BufferedProtocol):
    """Hands the connection to the application, limits the header lines, which uvicorn does not, and reads into the
    shared buffer (`transports/pipes.py`)."""

    _header_bytes = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        return BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(BUFFER[:nbytes]))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes = 0
        self.scope["extensions"] = {TRANSPORT: {"transport": self.transport}}

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > HEADER_BYTES:
            self.transport.abort()
        else:
            super().on_header(name, value)


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
        self._ready.set()
