"""HTTP clients of the legacy era: sessions.

`initialize` opens a session, every reply comes as server-sent events that can be resumed, and a client that
disconnects has cancelled nothing. With a `SessionCarrier` other processes serve the same sessions.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET

from foretool.server.protocol import headers as http_headers
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Message
from foretool.server.transports.client import http_request
from foretool.server.transports.client.access import Identity
from foretool.server.transports.client.base import Channel, Front, Fronts, SessionCarrier
from foretool.server.transports.client.event_store import EventStore, Memory, Stream
from foretool.server.transports.client.http_request import HttpRequest
from foretool.server.transports.client.http_rules import HttpLimits
from foretool.server.transports.client.security import RequestRefused

Admit = Callable[[Identity, str], None]

MOST_REQUESTS: Final = 256
"""Requests of one session that may wait for their answers; a client that goes away has cancelled none of them."""
_RETRY_MS: Final = 1000
"""When a client is to come back to a stream that ended early."""


class LegacySession:
    """One client between `initialize` and `DELETE`."""

    def __init__(
        self, fronts: Fronts, profile: str, identity: Identity, memory: Memory, sharing: SessionCarrier | None = None,
        id: str = "",
    ) -> None:  # fmt: skip
        """`id`: that of a session which another replica has begun."""
        self.id = id or secrets.token_hex(16)
        self.profile = profile
        self.principal = identity.principal
        self.identity = identity
        """Who sent the latest request."""
        standalone: Channel
        self.shared: Any
        """What it has with other replicas, if there are any."""
        if sharing is None:
            self.events = EventStore(memory=memory)
            standalone = self.events.standalone
        else:
            standalone = sharing.attach(self, memory)
        self.front: Front = fronts.open("legacy", "http", standalone, profile, identity.principal, name=identity.name)
        if sharing is not None:
            self.front.share(sharing.id)
        self.responses = 0
        """Responses that are being sent; a session in use is not idle."""
        self.used_at = time.monotonic()


class LegacyClients:
    """Serves the legacy era. A session that is unused for too long is closed.

    `admit(identity, profile)` raises `RequestRefused` for who may not come in any more. `shares`: how many principals
    there are; each may have an equal part of the sessions, so that none keeps the others out."""

    def __init__(
        self, fronts: Fronts, admit: Admit, limits: HttpLimits, shares: int, memory: Memory,
        sharing: SessionCarrier | None = None,
    ) -> None:  # fmt: skip
        """`sharing`: None for one process alone."""
        self.sessions: dict[str, LegacySession] = {}
        self._fronts = fronts
        self._admit = admit
        self._memory = memory
        self._sharing = sharing
        if sharing is not None:
            sharing.drop = self._drop
        self.set_limits(limits, shares)

    def set_limits(self, limits: HttpLimits, shares: int) -> None:
        self._most = limits.max_sessions
        self._share = max(1, limits.max_sessions // shares)
        self._idle_s = limits.session_idle_s

    async def serve(self, request: HttpRequest, profile: str, identity: Identity) -> None:
        """Answer one HTTP request. Raises as `HttpRequest.message` does."""
        if request.method == "POST":
            await self._post(request, profile, identity)
        elif request.method == "GET":
            await self._get(request, profile, identity)
        elif request.method == "DELETE":
            self._end(self._session(request, profile, identity))
            await request.reply(200)
        else:
            raise RequestRefused(405, f"{request.method} means nothing here", allow="GET, POST, DELETE")

    def _session(self, request: HttpRequest, profile: str, identity: Identity) -> LegacySession:
        ident = request.headers.get(http_headers.SESSION)
        if ident is None:
            raise RequestRefused(400, "Mcp-Session-Id is missing; send initialize first")
        session = self.sessions.get(ident)
        if self._sharing is not None:
            session = self._find_shared(self._sharing, ident, session, profile, identity)
        # The session of another credential gets the same answer as one that does not exist.
        if session is None or session.principal != identity.principal or session.profile != profile:
            raise RequestRefused(404, "Session not found; send initialize again")
        session.used_at = time.monotonic()
        session.identity = identity
        return session

    def _find_shared(
        self, sharing: SessionCarrier, ident: str, session: LegacySession | None, profile: str, identity: Identity
    ) -> LegacySession | None:
        """Return a session as the replicas know it, None if it has ended or is another's. Raises `RequestRefused` while
        that cannot be found out."""
        if session is not None:
            return session if sharing.follow(session) else None
        if not (found := sharing.find(ident, identity.principal, profile)):
            return None
        self._admit(identity, profile)
        self._make_way(identity.principal)
        session = LegacySession(self._fronts, profile, identity, self._memory, sharing, ident)
        sharing.adopt(session, found)
        self.sessions[ident] = session
        return session

    def _make_way(self, principal: str) -> None:
        """Leave a session that nobody uses here to other replicas, where there is no room for one more."""
        if self._has_room(principal):
            return
        own = [session for session in self.sessions.values() if session.principal == principal]
        unused = [session for session in own if not (session.responses or session.front.in_flight)]
        if not unused:
            raise self._full()
        self._drop(min(unused, key=lambda session: session.used_at))

    async def _post(self, request: HttpRequest, profile: str, identity: Identity) -> None:
        message = await request.message()
        is_new = request.headers.get(http_headers.SESSION) is None
        if is_new and message.method == "initialize" and message.id is not UNSET:
            await self._initialize(request, message, self._begin(profile, identity))
            return
        session = self._session(request, profile, identity)
        if message.method is UNSET or message.id is UNSET:
            session.front.receive(message, session.events.standalone)
            if self._sharing is not None:
                self._sharing.pass_on(session, message)
            await request.reply(202)
            return
        if session.events.open_count > MOST_REQUESTS:
            raise RequestRefused(429, f"{MOST_REQUESTS} requests of this session have no answer yet", retry_after="2")
        stream = session.events.open_stream(self._tag(message))
        try:
            session.front.receive(message, stream)
        except BaseException:
            stream.end()  # or the session would keep it for ever
            raise
        if self._sharing is not None and message.method == "tools/list":
            self._sharing.note_listed(session)
        await self._send(request, session, stream)

    def _tag(self, message: Message) -> str:
        return self._sharing.tag(message.id) if self._sharing is not None and isinstance(message.id, int | str) else ""

    def _begin(self, profile: str, identity: Identity) -> LegacySession:
        self._admit(identity, profile)
        if not self._has_room(identity.principal):
            raise self._full()
        session = LegacySession(self._fronts, profile, identity, self._memory, self._sharing)
        self.sessions[session.id] = session
        return session

    def _has_room(self, principal: str) -> bool:
        own = sum(session.principal == principal for session in self.sessions.values())
        return own < self._share and len(self.sessions) < self._most

    def _full(self) -> RequestRefused:
        reason = f"all {self._share} sessions are taken; end some with DELETE, or try again later"
        return RequestRefused(503, reason, retry_after="60")

    async def _initialize(self, request: HttpRequest, message: Message, session: LegacySession) -> None:
        """Wait for the reply before the response begins: it decides whether there is a session, and its version."""
        stream = session.events.open_stream()
        reader = stream.attach(request.abort)
        agreed = False
        try:
            session.front.receive(message, stream)
            request.watch(reader.wake)
            while not stream.is_finished and not request.is_gone:
                await reader.wait(http_request.PING_S)
            agreed = stream.is_finished and stream.code is None and not request.is_gone
            if not agreed:
                self._end(session)
            elif (reply := stream.latest) is not None:
                version = jsonrpc.member(jsonrpc.decode(reply).result, "protocolVersion") or ""
                session.events.primes = version >= "2025-11-25"  # the client wants priming events
        finally:
            stream.detach(reader)
        if not request.is_gone:
            await self._send(request, session, stream, named=agreed)

    async def _get(self, request: HttpRequest, profile: str, identity: Identity) -> None:
        if not request.accepts(http_request.EVENTS_KIND):
            raise RequestRefused(406, f"Accept must list {http_headers.EVENTS}")
        session = self._session(request, profile, identity)
        last = request.headers.get("last-event-id")
        stream = session.events.standalone if last is None else session.events.resume(last)
        if stream is None and self._sharing is not None:
            stream = self._sharing.resume(session, last or "")
        if stream is None:
            raise RequestRefused(400, "the stream of this Last-Event-ID is not kept any more; send the request again")
        if self._sharing is not None and stream is session.events.standalone:
            await self._sharing.carry(session, self._send(request, session, stream))
        else:
            await self._send(request, session, stream)

    async def _send(self, request: HttpRequest, session: LegacySession, stream: Stream, *, named: bool = True) -> None:
        """Send a stream in a response, as far as it goes. `named`: with the id of the session."""
        session.responses += 1
        reader = stream.attach(request.abort)
        try:
            first = stream.priming_event(_RETRY_MS) if session.events.primes else b""
            await request.send_events(reader, first, session.id if named else None)
        finally:
            stream.detach(reader)
            session.responses -= 1
            session.used_at = time.monotonic()

    def expire(self, now: float) -> None:
        """Close the sessions that nobody has used for too long. `now`: monotonic seconds."""
        if self._sharing is not None:
            self._sharing.tick(self.sessions.values(), now, self._idle_s)
        for session in list(self.sessions.values()):
            if self._idle_s and not session.responses and now - session.used_at > self._idle_s:
                self._drop(session)

    def _drop(self, session: LegacySession) -> None:
        """Forget a session here; with other replicas, those go on with it."""
        if self.sessions.pop(session.id, None) is not None:
            if self._sharing is not None:
                self._sharing.forget(session)
                session.front.leave()
            else:
                session.front.close()
            session.events.close()

    def _end(self, session: LegacySession) -> None:
        """End a session everywhere."""
        if self._sharing is not None and self.sessions.pop(session.id, None) is not None:
            self._sharing.end(session)
            session.front.close()
            session.events.close()
        self._drop(session)

    def close_refused(self, opens: Callable[[Identity, str], bool]) -> None:
        """Close the sessions of those who may not come in any more."""
        for session in list(self.sessions.values()):
            if not opens(session.identity, session.profile):
                self._end(session)

    def close(self) -> None:
        for session in list(self.sessions.values()):
            self._drop(session)
