"""Sessions of the legacy era that any replica serves: kept in the database, and found there by whoever has their id.

A request may reach any replica. One that does not know its session makes it from what the database keeps, bound to the
credential and the profile that began it. Before each request a replica looks whether another one has changed the
session or ended it. What a client says about a request that runs elsewhere goes on as a letter, and so does what a
replica has to say to a client whose stream another one carries.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

import msgspec

from foretool.fleet.replicas.replica import Replica, Shared
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Id, Message
from foretool.server.transports.client.base import Channel, TransportSession
from foretool.server.transports.client.event_store import EventStore, Memory, Stream, split_event_id
from foretool.server.transports.client.security import RequestRefused
from foretool.storage.engine import StorageError
from foretool.storage.records import Letter, LiveSession
from foretool.storage.store import Store

_TOUCH_S: Final = 30.0
"""How often it is kept that a session is in use."""
MOST_FEEDS: Final = 16
"""Streams of other replicas that one session may resume at the same time."""
_FEED_S: Final = 900.0
"""How long such a stream waits for its next event."""
_FIRST_LOOK_S: Final = 0.02
_LOOK_S: Final = 0.5
_LONGEST_TAG: Final = 96
_MEMO: Final = "memo"

GONE: Final = (
    "the replica that ran this request has ended before its answer was kept; whether it was carried out is not known:"
    " send it again if that does no harm"
)
_AWAY: Final = "this replica does not know the session and cannot reach the database where it is kept; try again"


class SharedSessions:
    """Shares the legacy sessions of this process with its replicas, and continues theirs. It is a
    `transports.client.base.SessionCarrier`, which says what its methods do."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.id = replica.id
        self.drop: Callable[..., None] = lambda session: None
        """Forgets a session that has ended elsewhere."""
        self._by_ident: dict[bytes, TransportSession] = {}
        self._feeds: set[asyncio.Task[None]] = set()
        self._touched_at: dict[bytes, float] = {}
        replica.take = self._take

    async def run(self) -> None:
        await self.replica.run()

    # -- coming and going

    def attach(self, session: TransportSession, memory: Memory) -> Channel:
        session.shared = Shared(session.id)
        prefix = f"{self.replica.id}-"
        keep = partial(self._keep, session)
        session.events = EventStore(memory=memory, prefix=prefix, keep=keep)
        self._by_ident[session.shared.ident] = session
        return _Standalone(self, session)

    def find(self, session_id: str, principal: str, profile: str) -> tuple[LiveSession, bytes] | None:
        shared = Shared(session_id)
        try:
            found = self.replica.store.find(shared.ident)
        except StorageError:
            raise RequestRefused(503, _AWAY, retry_after="1") from None
        if found is None or (found.principal, found.profile) != (principal, profile):
            return None
        memo = shared.open(found.memo, _MEMO)
        return None if memo is None else (found, memo)

    def adopt(self, session: TransportSession, found: tuple[LiveSession, bytes]) -> None:
        kept, memo = found
        session.front.resume(memo)
        session.events.primes = session.front.version >= "2025-11-25"
        session.shared.revision, session.shared.reader = kept.revision, kept.reader
        session.shared.memo = session.front.memo()

    def follow(self, session: TransportSession) -> bool:
        shared = session.shared
        if not shared.revision:
            return True  # the database does not have it yet
        try:
            revision = self.replica.store.revision(shared.ident)
            if revision == shared.revision:
                return True
            found = self.find(session.id, session.principal, session.profile)
        except (StorageError, RequestRefused):
            return True
        if found is None:
            self.drop(session)
            return False
        self.adopt(session, found)
        return True

    def save(self, session: TransportSession) -> None:
        """Write what has changed of a session to the database."""
        shared = session.shared
        memo = session.front.memo()
        if shared.revision and memo == shared.memo:
            return
        key, sealed = session.front.session_key, shared.seal(memo, _MEMO)
        row = LiveSession(
            shared.ident, key, session.principal, session.profile, sealed, shared.reader, time.time()
        )  # fmt: skip
        with contextlib.suppress(StorageError):
            shared.revision = self.replica.store.save(row)
            shared.memo = memo

    def end(self, session: TransportSession) -> None:
        self.forget(session)
        with contextlib.suppress(StorageError):
            self.replica.store.end(session.shared.ident)
        self.replica.post("ended", session.shared)

    def forget(self, session: TransportSession) -> None:
        self._by_ident.pop(session.shared.ident, None)
        self._touched_at.pop(session.shared.ident, None)

    def tick(self, sessions: Iterable[TransportSession], now: float, idle_s: float) -> None:
        pause = min(_TOUCH_S, idle_s / 4) if idle_s else _TOUCH_S
        due = []
        for session in sessions:
            if not session.shared.revision:
                self.save(session)
            before = self._touched_at.setdefault(session.shared.ident, now)
            if now - before > pause and (session.responses or session.used_at > before):
                due.append(session.shared.ident)
        if due:
            with contextlib.suppress(StorageError):
                self.replica.store.touch(due, time.time())
                self._touched_at.update(dict.fromkeys(due, now))
        self.replica.tick(idle_s)

    def close(self) -> None:
        for task in list(self._feeds):
            task.cancel()

    # -- streams

    def tag(self, ident: Id) -> str:
        written = base64.urlsafe_b64encode(jsonrpc.encode(ident)).decode()
        return f"~{written}" if len(written) <= _LONGEST_TAG else ""

    def _keep(self, session: TransportSession, stream: str, number: int, data: bytes, last: bool) -> None:
        if stream.startswith(f"{self.replica.id}-"):
            self.replica.keep(session.shared, stream, number, data, last, partial(self.save, session))

    def resume(self, session: TransportSession, event_id: str) -> Stream | None:
        name, after = split_event_id(event_id)
        owner, _, rest = name.partition("-")
        if not rest or owner == self.replica.id:
            return None
        if rest == "0":
            for _, data in self._events(session, name, after):
                session.events.standalone.send(data)
            return session.events.standalone
        if session.shared.feeds >= MOST_FEEDS:
            raise RequestRefused(429, f"{MOST_FEEDS} streams of this session are being resumed", retry_after="2")
        stream = session.events.adopt(name, after)
        task = asyncio.create_task(self._feed(session, stream, owner, after))
        self._feeds.add(task)
        task.add_done_callback(self._feeds.discard)
        return stream

    async def _feed(self, session: TransportSession, stream: Stream, owner: str, after: int) -> None:
        """Send what the owner of a stream keeps, until its end; answer in its place if it has gone."""
        session.shared.feeds += 1
        try:
            async with asyncio.timeout(_FEED_S):
                pause = _FIRST_LOOK_S
                while not stream.is_finished:
                    is_alive = self.replica.is_alive(owner)  # before the look, which then sees its last event
                    for number, data in self._events(session, stream.name, after):
                        after, pause = number, _FIRST_LOOK_S
                        self._send(stream, data)
                    if not is_alive and not stream.is_finished:
                        self._answer_gone(stream)
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.5, _LOOK_S)
        except TimeoutError:
            stream.end()
        finally:
            session.shared.feeds -= 1

    def _events(self, session: TransportSession, stream: str, after: int) -> list[tuple[int, bytes]]:
        try:
            kept = self.replica.store.events(session.shared.ident, stream, after)
        except StorageError:
            return []
        opened = ((each.number, session.shared.open(each.data, f"{stream}.{each.number}")) for each in kept)
        return [(number, data) for number, data in opened if data is not None]

    def _send(self, stream: Stream, data: bytes) -> None:
        if is_reply(data):
            stream.finish(data, None)
        else:
            stream.send(data)

    def _answer_gone(self, stream: Stream) -> None:
        _, _, tag = stream.name.partition("~")
        try:
            ident = msgspec.json.decode(base64.urlsafe_b64decode(tag), type=int | str)
        except (ValueError, msgspec.MsgspecError):
            stream.end()
            return
        data = jsonrpc.failure(ident, jsonrpc.error_object(jsonrpc.INTERNAL_ERROR, GONE))
        stream.finish(data, jsonrpc.INTERNAL_ERROR)

    # -- what belongs to no request

    async def carry(self, session: TransportSession, sending: Awaitable[None]) -> None:
        self._set_reader(session, self.replica.id)
        try:
            await sending
        finally:
            if session.shared.reader == self.replica.id and not session.events.standalone.is_carried:
                self._set_reader(session, "")

    def _set_reader(self, session: TransportSession, reader: str) -> None:
        session.shared.reader = reader
        with contextlib.suppress(StorageError):
            self.replica.store.set_reader(session.shared.ident, reader, self.replica.id)
        self.replica.post("reader", session.shared, reader.encode())

    def send_unasked(self, session: TransportSession, data: bytes) -> None:
        """Send a message that belongs to no request, through the replica that carries the stream for these."""
        stream, reader = session.events.standalone, session.shared.reader
        if reader in ("", self.replica.id) or stream.is_carried:
            stream.send(data)
        elif self.replica.is_alive(reader):
            self.replica.post("event", session.shared, data, reader)
        else:
            session.shared.reader = ""
            stream.send(data)

    # -- letters

    def pass_on(self, session: TransportSession, message: Message) -> None:
        if message.method != "notifications/initialized":
            self.replica.post("message", session.shared, jsonrpc.encode(message))

    def note_listed(self, session: TransportSession) -> None:
        self.replica.post("listed", session.shared)

    def _take(self, letter: Letter) -> None:
        session = self._by_ident.get(letter.session)
        data = session.shared.open(letter.data, letter.kind) if session is not None else None
        if session is None or data is None:
            return
        match letter.kind:
            case "message":
                session.front.receive(jsonrpc.decode(data), session.events.standalone)
            case "event":
                self.send_unasked(session, data)
            case "listed":
                session.front.note_listed()
            case "reader":
                session.shared.reader = data.decode()
                if session.shared.reader and not session.events.standalone.is_carried:
                    for event in session.events.standalone.withdraw():
                        self.replica.post("event", session.shared, event, session.shared.reader)
            case "ended":
                self.drop(session)


class _Standalone:
    """The `Channel` for what belongs to no request of a session."""

    def __init__(self, sharing: SharedSessions, session: TransportSession) -> None:
        self._sharing = sharing
        self._session = session

    def send(self, data: bytes) -> None:
        self._sharing.send_unasked(self._session, data)

    def finish(self, data: bytes, code: int | None) -> None:
        self.send(data)

    def poll(self) -> None:
        self._session.events.standalone.poll()

    def end(self) -> None:
        self._session.events.standalone.end()


def is_reply(data: bytes) -> bool:
    """Return whether a message of ours is a reply."""
    return jsonrpc.decode(data).is_reply


def share_sessions(store: Store, changed: Callable[[str], None]) -> SharedSessions | None:
    """Return what this process shares with other replicas; None where one machine alone can have the store. `changed`:
    as of `Replica`."""
    return SharedSessions(Replica(store.replicas, changed)) if store.replicas is not None else None
