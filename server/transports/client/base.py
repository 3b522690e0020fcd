"""What the proxy and a transport to clients know of each other: who calls, and where answers go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from foretool.server.protocol.jsonrpc import Id, Message
from foretool.server.transports.client.event_store import EventStore, Memory, Stream
from foretool.storage.records import Era, LiveSession


class Channel(Protocol):
    """Takes everything that belongs to one request of a client.

    The proxy calls these methods only after the records of the request are committed; each returns at once.
    """

    def send(self, data: bytes) -> None:
        """Send a notification or a question that belongs to the request: one JSON-RPC message without a line end."""

    def finish(self, data: bytes, code: int | None) -> None:
        """Send the reply, the last message. `code`: JSON-RPC error code if it is an error, else None."""

    def poll(self) -> None:
        """End the stream of the request so that the client polls for the rest, as the upstream did with us."""

    def end(self) -> None:
        """End without a reply: the client has cancelled the request."""


class Front(Protocol):
    """One client as the proxy knows it: a stdio process, a legacy HTTP session, or a caller of the modern era."""

    era: Era

    @property
    def in_flight(self) -> int:
        """How many of its requests have no answer."""
        ...

    def receive(self, message: Message, channel: Channel) -> None:
        """Take a message of the client. What belongs to a request goes to `channel`; notifications and replies to our
        questions do not use it."""

    def cancel(self, channel: Channel, reason: str) -> None:
        """Cancel the request of `channel`: the client went away from it (modern HTTP: closed its stream)."""

    def close(self) -> None:
        """The client is gone: cancel its requests and end its subscriptions."""

    # Of a session that several replicas serve

    def share(self, replica: str) -> None:
        """Note that other replicas serve the session too. `replica` marks our questions, to tell them from theirs."""

    @property
    def version(self) -> str:
        """The version of the protocol that the client was told."""
        ...

    @property
    def session_key(self) -> str:
        """The key of the session on record, "" before it has begun."""
        ...

    def memo(self) -> bytes:
        """Return what another replica needs to know to go on with the session."""
        ...

    def resume(self, memo: bytes) -> None:
        """Go on with a session of another replica, or take in what has changed of it there."""

    def note_listed(self) -> None:
        """The client has listed its tools at another replica."""

    def leave(self) -> None:
        """Like `close`, but the session goes on at other replicas."""


class Fronts(Protocol):
    """Takes new clients; this is how a transport knows the proxy."""

    def open(
        self, era: Era, transport: str, standalone: Channel, /, profile: str = "", principal: str = "",
        folder: str = "", name: str = "", window: str = "",
    ) -> Front:  # fmt: skip
        """Add a client. `standalone` takes notifications and questions that belong to no request (stdio: the same
        output; legacy HTTP: the GET stream; modern HTTP: nothing). `principal`: its credential, "" for none; `name`:
        whose that is, in words. `folder`: where a window of a shared proxy works; `window`: its name.

        The era of a stdio process is not known yet: pass "legacy"; the first message settles it.
        """
        ...


# What carries a session of the legacy era beyond one process: the pack for many replicas, where there are any.


class TransportSession(Protocol):
    """A legacy HTTP session, as the carrier of sessions needs it."""

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
    """Shares the legacy sessions of this process with its replicas, and continues theirs."""

    id: str
    """The name of this process among the others."""
    drop: Callable[..., None]
    """Forgets a session that has ended elsewhere."""

    async def run(self) -> None:
        """Receive what other replicas send, until cancelled."""

    def close(self) -> None: ...

    def attach(self, session: TransportSession, memory: Memory) -> Channel:
        """Prepare a session that begins here; return its channel for what belongs to no request."""
        ...

    def find(self, session_id: str, principal: str, profile: str) -> tuple[LiveSession, bytes] | None:
        """Return what is kept of a session and its memo; None if it is gone or belongs to somebody else. Raises
        `RequestRefused` while the database is away."""
        ...

    def adopt(self, session: TransportSession, found: tuple[LiveSession, bytes]) -> None:
        """Continue a session that another replica has begun."""

    def follow(self, session: TransportSession) -> bool:
        """Take over what other replicas have changed of a session; return False if it has ended."""
        ...

    def end(self, session: TransportSession) -> None:
        """End a session for all replicas."""

    def forget(self, session: TransportSession) -> None:
        """Forget a session in this process; it goes on at other replicas."""

    def tick(self, sessions: Iterable[TransportSession], now: float, idle_s: float) -> None:
        """Record which sessions are in use, and remove those that nobody uses; called about once a second. `now`:
        monotonic seconds."""

    def tag(self, ident: Id) -> str:
        """Return the part of a stream's name that identifies its request, by which any replica can answer it."""
        ...

    def resume(self, session: TransportSession, event_id: str) -> Stream | None:
        """Return the stream of an event that another replica has sent, to be continued; None if there can be none."""
        ...

    async def carry(self, session: TransportSession, sending: Awaitable[None]) -> None:
        """While `sending` lasts, send the client whatever any replica has for it that belongs to no request."""

    def pass_on(self, session: TransportSession, message: Message) -> None:
        """Pass to other replicas a notification or an answer of the client that may be meant for them."""

    def note_listed(self, session: TransportSession) -> None:
        """Tell other replicas that the client has listed its tools."""
