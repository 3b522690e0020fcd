"""What carries a session of the legacy era beyond one process: the pack for many replicas, where there are any."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from foretool.server.protocol.jsonrpc import Id, Message
from foretool.server.transports.client.base import Channel, Front
from foretool.server.transports.client.event_store import EventStore, Memory, Stream
from foretool.storage.records import LiveSession


class TransportSession(Protocol):
    """A session as the transport has it."""

    id: str
    profile: str
    principal: str
    shared: Any
    """What the carrier keeps with it."""
    events: EventStore
    front: Front
    responses: int
    used_at: float


class SessionCarrier(Protocol):
    """Keeps the sessions of this process where others find them, and takes over theirs."""

    id: str
    """The name of this process among the others."""
    drop: Callable[..., None]
    """Forgets a session that has ended elsewhere."""

    async def run(self) -> None:
        """Take what others say until cancelled."""

    def close(self) -> None: ...

    def attach(self, session: TransportSession, memory: Memory) -> Channel:
        """Prepare a session that begins here; return its channel for what belongs to no request."""
        ...

    def find(self, session_id: str, principal: str, profile: str) -> tuple[LiveSession, bytes] | None:
        """Return what is kept of a session and its memo, None if it is not there or belongs to somebody else.
        Raises `Refused` while that cannot be found out."""
        ...

    def adopt(self, session: TransportSession, found: tuple[LiveSession, bytes]) -> None:
        """Go on with a session of others."""

    def follow(self, session: TransportSession) -> bool:
        """Record what others have changed of a session; return False if it has ended."""
        ...

    def end(self, session: TransportSession) -> None:
        """End a session for all."""

    def forget(self, session: TransportSession) -> None:
        """Forget a session here."""

    def tick(self, sessions: Iterable[TransportSession], now: float, idle_s: float) -> None:
        """Note which sessions are in use, and remove what nobody uses. `now`: monotonic."""

    def tag(self, ident: Id) -> str:
        """Return what the name of a stream says of its request, so that any process can answer it."""
        ...

    def resume(self, session: TransportSession, event_id: str) -> Stream | None:
        """Return the stream of an event that another process has sent, None if there can be none."""
        ...

    async def carry(self, session: TransportSession, sending: Awaitable[None]) -> None:
        """Send what belongs to no request to the client, for all, while `sending` lasts."""

    def pass_on(self, session: TransportSession, message: Message) -> None:
        """Tell others what the client has said about a request, or answered, that may be theirs."""

    def note_listed(self, session: TransportSession) -> None:
        """Tell others that the client has listed its tools."""
