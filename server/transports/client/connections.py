"""The connections of HTTP clients: how they are read, how many there may be, and how long they may waste our time.

uvicorn parses and answers; what it leaves unlimited is limited here. No request has a timer of its own: `sweep` looks
at all connections about once a second.

Reading is counted by time: requests that come byte by byte, or in chunks of a byte, take many times what their bytes
take at once. A connection with a request that is not whole rests when its client has taken its share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from foretool.server.system.peers import is_own_peer
from foretool.server.transports.allowance import Allowance, StepWatch, Took
from foretool.server.transports.client.http_request import CONNECTION
from foretool.server.transports.client.http_rules import HttpLimits
from foretool.server.transports.pipes import BUFFER

_READ_BYTES: Final = 32 * 1024
"""Most bytes of one read, so that hundreds of senders hold up one round of the loop for some milliseconds only."""
_HEADER_BYTES: Final = 64 * 1024
"""Most bytes of one request that are not its body: request line, headers, chunk sizes, trailers."""
_RESTING_READ_BYTES: Final = 1024
"""The same for who has used its time up: each byte may be a chunk, which takes a microsecond or more."""
_READ_S: Final = 30e-6
"""Seconds that the loop takes around each read: it looks which socket is ready, calls and copies."""
_HONEST_S: Final = 0.001
"""Seconds of the processor that a read may take besides what its bytes take, where it ends a request or is one of the
first `_PIECES` of one."""
_PIECES: Final = 4
_MOST_HEADERS: Final = 128
MOST_PIPELINED: Final = 8
"""Requests that may wait behind the one that is being answered; uvicorn would take any number."""
_CHUNK_COST: Final = 8
"""Bytes around each byte of a body that chunks of one byte take."""
LEFT_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of a body that a client still sends after its answer; they are thrown away."""
_LEFT_BYTES_OF_STRANGERS: Final = 256 * 1024
"""The same for who has not shown a token."""
LEFT_RATE: Final = 32 * 1024 * 1024
"""Most bytes of such bodies, of all connections, between two sweeps."""
UNREAD_BYTES: Final = 64 * 1024 * 1024
"""Most bytes that all clients together may leave unread; a single larger answer still passes."""
STALL_S: Final = 60.0
"""A client that reads nothing of an answer for this long is given up."""


class HttpConnection(HttpToolsProtocol, asyncio.BufferedProtocol):
    """One connection of an HTTP client."""

    def __init__(self, connections: Connections, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self.principal: str | None = None
        """Who sent the latest request; None until a token was checked."""
        self.source = ""
        self.waiting_since: float | None = None
        """Since when the rest of a request's header lines is awaited, or what belongs to no request is coming in."""
        self.unread = 0
        """How much the client had left unread at the last sweep."""
        self.unread_since = 0.0
        self._connections = connections
        self._allowance = Allowance()
        self._resting: asyncio.TimerHandle | None = None
        self._pieces = self._ended = 0
        """How many reads the latest request has taken, and how many requests have ended."""
        self._overhead = 0
        self._left = 0
        self._status = HTTPStatus.BAD_REQUEST

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        if not is_own_peer(transport.get_extra_info("socket")):
            transport.abort()
            return
        self.source = self.client[0] if self.client else ""
        self.waiting_since = self.loop.time()
        self._connections.add(self)
        self._allowance = self._connections.allowance(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        if self._resting is not None:
            self._resting.cancel()
        super().connection_lost(exc)

    def recognise(self, principal: str) -> None:
        if self.principal != principal:
            self._connections.recognise(self, principal)
            self._allowance = self._connections.allowance(self)

    # -- what comes in

    def get_buffer(self, sizehint: int) -> memoryview:
        return BUFFER[: _RESTING_READ_BYTES if self._allowance.pause_s else _READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        watch, ended = StepWatch(), self._ended
        self._read(nbytes)
        self._pieces += 1
        took, is_honest = watch.took(), self._ended > ended or self._pieces <= _PIECES
        self._allowance.note_part(nbytes)
        took = Took(took.processor_s + _READ_S, took.wall_s + _READ_S)
        is_within = self._allowance.spend(took, _HONEST_S if is_honest else 0.0) > 0
        if not is_within and (pause_s := self._allowance.pause_s):
            self._rest(pause_s)

    def _rest(self, seconds: float) -> None:
        """Do not read for so long."""
        if self.transport.is_closing():
            return
        self.transport.pause_reading()  # also where uvicorn has begun to read again meanwhile
        if self._resting is None:
            self._resting = self.loop.call_later(seconds, self._end_rest)

    def _end_rest(self) -> None:
        self._resting = None
        if not self.flow.read_paused:
            self.transport.resume_reading()

    def _read(self, nbytes: int) -> None:
        if self.waiting_since is None and self.is_idle:
            self.waiting_since = self.loop.time()
        self._overhead += nbytes
        self.data_received(bytes(BUFFER[:nbytes]))
        if self._overhead > _HEADER_BYTES:
            self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self.waiting_since is None:
            self.waiting_since = self.loop.time()
        self._overhead = self._left = self._pieces = 0
        self.scope["extensions"] = {CONNECTION: {CONNECTION: self}}

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.waiting_since is None:
            return  # a trailer: whatever it says, the request has been let in without it
        super().on_header(name, value)
        if len(self.headers) > _MOST_HEADERS:
            self._status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise ValueError("too many header lines")  # ends the parsing, see `send_400_response`

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            self._status = HTTPStatus.TOO_MANY_REQUESTS
            raise ValueError("too many requests behind each other")
        if not self.url.startswith((b"/", b"*")):
            # A whole address names a host of its own, beside the Host that the guards check.
            self._status = HTTPStatus.MISDIRECTED_REQUEST
            raise ValueError("the target is the address of a proxy's request")
        super().on_headers_complete()
        self.waiting_since = None

    def on_body(self, body: bytes) -> None:
        self._overhead = max(0, self._overhead - (1 + _CHUNK_COST) * len(body))
        if self.is_idle:
            self._left += len(body)
            if self.principal is None and self._left > _LEFT_BYTES_OF_STRANGERS:
                self.transport.pause_reading()  # `sweep` closes it; closed now, it would only come again
            elif self._left > LEFT_BYTES:
                self.transport.abort()
            else:
                self._connections.discard(self, len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._ended += 1
        super().on_message_complete()

    # -- how it ends

    def send_400_response(self, msg: str) -> None:
        self.refuse(self._status)

    def refuse(self, status: HTTPStatus, more: bytes = b"") -> None:
        """Close the connection, with a last answer unless one is being sent."""
        if self.transport.is_closing():
            return
        if not self.is_idle and self.cycle.response_started:
            self.transport.abort()
            return
        line = f"HTTP/1.1 {status.value} {status.phrase}\r\nconnection: close\r\ncontent-length: 0\r\n".encode()
        self.transport.write(line + more + b"\r\n")
        self.transport.close()


class Connections:
    """All connections, the oldest first.

    When a connection more than `max_connections` comes, one goes: the oldest that has never shown a token, of the
    address with most of those; else the oldest idle one of the token with most connections; else the new one.
    """

    def __init__(self, limits: HttpLimits, shares: int) -> None:
        self.set_limits(limits, shares)
        self._strangers: dict[str, dict[HttpConnection, None]] = {}
        """By address: connections that have not shown a token."""
        self._known: dict[str, dict[HttpConnection, None]] = {}
        """By principal: the others."""
        self._allowances: dict[tuple[bool, str], Allowance] = {}
        """By whether it is a principal or an address, and its name."""
        self._count = 0
        self._discarded = 0
        self._paused: set[HttpConnection] = set()

    def set_limits(self, limits: HttpLimits, shares: int) -> None:
        self._most = min(limits.max_connections, _most_files() * 3 // 4)
        self._share = self._most // shares
        self._header_s = limits.header_s

    def __len__(self) -> int:
        return self._count

    def protocol(self) -> Callable[..., HttpConnection]:
        """Return what uvicorn makes a connection with."""
        return lambda **uvicorn: HttpConnection(self, **uvicorn)

    def add(self, connection: HttpConnection) -> None:
        self._strangers.setdefault(connection.source, {})[connection] = None
        self._count += 1
        if self._count > self._most:
            self._make_room(connection)

    def recognise(self, connection: HttpConnection, principal: str) -> None:
        self._forget(connection)
        connection.principal = principal
        self._known.setdefault(principal, {})[connection] = None

    def remove(self, connection: HttpConnection) -> None:
        if self._forget(connection):
            self._count -= 1

    def _forget(self, connection: HttpConnection) -> bool:
        groups = self._strangers if connection.principal is None else self._known
        key = connection.source if connection.principal is None else connection.principal
        group = groups.get(key, {})
        if connection not in group:
            return False
        del group[connection]
        if not group:
            del groups[key]
        return True

    def allowance(self, connection: HttpConnection) -> Allowance:
        """Return what limits the time of all connections of a principal, or, without one, of an address."""
        name = connection.source if connection.principal is None else connection.principal
        return self._allowances.setdefault((connection.principal is not None, name), Allowance())

    def _make_room(self, newest: HttpConnection) -> None:
        crowds = [
            (len(group), first is not newest, first) for group in self._strangers.values() for first in [*group][:1]
        ]
        _, is_other, oldest = max(crowds, key=lambda crowd: crowd[:2])
        victim = oldest if is_other else self._least_needed() or newest
        self.remove(victim)
        if victim is newest:
            victim.refuse(HTTPStatus.SERVICE_UNAVAILABLE, b"retry-after: 5\r\n")
        else:
            victim.transport.abort()

    def _least_needed(self) -> HttpConnection | None:
        group = max(self._known.values(), key=len, default={})
        idle = next((connection for connection in group if connection.is_idle), None)
        if idle is None and len(group) > self._share:
            return next(iter(group))
        return idle

    def discard(self, connection: HttpConnection, size: int) -> None:
        """Count bytes of a connection that are thrown away. After too many it is not read until the next sweep."""
        self._discarded += size
        if self._discarded > LEFT_RATE:
            connection.transport.pause_reading()
            self._paused.add(connection)

    # -- about once a second

    def sweep(self, now: float) -> None:
        """Close the connections whose header lines take too long, and those whose clients do not read. Called about
        once a second."""
        self._discarded = 0
        paused, self._paused = self._paused, set()
        for connection in paused:
            connection.transport.resume_reading()
        for key, allowance in list(self._allowances.items()):
            if key[1] not in (self._known if key[0] else self._strangers) and not allowance.pause_s:
                del self._allowances[key]
        for connection in self._all():
            if connection.waiting_since is not None and now - connection.waiting_since > self._header_s:
                connection.refuse(HTTPStatus.REQUEST_TIMEOUT)
            unread = connection.transport.get_write_buffer_size()
            if not unread or unread < connection.unread:
                connection.unread_since = now
            elif connection.unread and now - connection.unread_since > STALL_S:
                connection.transport.abort()
            connection.unread = unread

    def check_unread(self) -> None:
        """Break connections while clients leave too much unread: the largest of the principal that leaves most."""
        unread = {each: each.transport.get_write_buffer_size() for each in self._all()}
        unread = {each: size for each, size in unread.items() if size}
        while sum(unread.values()) > UNREAD_BYTES and len(unread) > 1:
            by_principal: dict[str | None, int] = {}
            for each, size in unread.items():
                by_principal[each.principal] = by_principal.get(each.principal, 0) + size
            worst = max(by_principal, key=lambda principal: by_principal[principal])
            largest = max((each for each in unread if each.principal == worst), key=lambda each: unread[each])
            del unread[largest]
            largest.transport.abort()

    def _all(self) -> list[HttpConnection]:
        return [each for groups in (self._strangers, self._known) for group in groups.values() for each in group]


def _most_files() -> int:
    """Return how many files the process may open."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20
