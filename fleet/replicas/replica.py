"""This process as one of several replicas: what it tells the others, and what it keeps where they find it.

Whatever is kept of a session is sealed with a key that follows from the session's id, of which the database has a
digest alone. So who reads the database reads no answer and no question, and a letter that others write there does
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from foretool.storage.engine import StorageError
from foretool.storage.records import Letter, LiveEvent

if TYPE_CHECKING:
    from foretool.fleet.postgres.replicas import ReplicaStore

MOST_EVENT: Final = 1024 * 1024
"""A larger event can only be resumed at the replica that sent it."""
MOST_WAITING: Final = 8 * 1024 * 1024
"""Bytes of events that wait for a database that is away; above that the oldest go first."""
CLEAN_S: Final = 10.0
"""Pause between two removals of what is old."""
_NONCE: Final = 12

log = logging.getLogger("foretool.replica")


class Shared:
    """The part of one session that all replicas share, and the key that seals it."""

    def __init__(self, session_id: str) -> None:
        secret = session_id.encode()
        self.ident = hashlib.blake2b(secret, digest_size=32, person=b"foretool-ident").digest()
        """What the database knows it by."""
        self._box = AESGCM(hashlib.blake2b(secret, digest_size=32, person=b"foretool-seal").digest())
        self.revision = 0
        """What this replica knows of it; 0 while the database does not have it."""
        self.memo = b""
        """The part of it that is kept there."""
        self.reader = ""
        """The replica that sends what belongs to no request, "" for none."""
        self.feeds = 0
        """Streams of other replicas that are being resumed here."""

    def seal(self, data: bytes, about: str) -> bytes:
        nonce = os.urandom(_NONCE)
        return nonce + self._box.encrypt(nonce, data, about.encode())

    def open(self, sealed: bytes, about: str) -> bytes | None:
        """Return the text that was sealed for this purpose; None if it was not sealed by this session."""
        try:
            return self._box.decrypt(sealed[:_NONCE], sealed[_NONCE:], about.encode())
        except (InvalidTag, ValueError):
            return None


class Replica:
    """Keeps events in the database before they are sent, and takes the letters of others."""

    def __init__(self, store: ReplicaStore, changed: Callable[[str], None] = lambda table: None) -> None:
        """`changed`: told the tables that any process has written, as `ReplicaStore.listen` says."""
        self.id = os.urandom(6).hex()
        self.store = store
        self.take: Callable[[Letter], None] = lambda letter: None
        """Takes letters that others have written to this replica or to all."""
        self._changed = changed
        self._events: list[LiveEvent] = []
        self._size = 0
        self._savers: dict[bytes, Callable[[], None]] = {}
        self._is_due = False
        self._cleaned_at = time.monotonic()

    async def run(self) -> None:
        """Take letters until cancelled."""
        await self.store.listen(self.id, self._take, self._changed)

    def _take(self, letter: Letter) -> None:
        if letter.sender != self.id and letter.to in ("", self.id):
            self.take(letter)

    # -- letters

    def post(self, kind: str, shared: Shared, data: bytes = b"", to: str = "") -> None:
        """Send a letter about a session to other replicas. It is dropped if the database cannot take it now."""
        with contextlib.suppress(StorageError):
            self.store.post(Letter(kind, self.id, to, shared.ident, shared.seal(data, kind)))

    def is_alive(self, replica: str) -> bool:
        """Return whether another replica runs. Returns True while that cannot be found out."""
        try:
            return self.store.is_alive(replica)
        except StorageError:
            return True

    # -- events

    def keep(self, shared: Shared, stream: str, number: int, data: bytes, last: bool, save: Callable[[], None]) -> None:
        """Write an event to the database before it is sent; `save` is called before that. Call it before whoever sends
        the event is woken."""
        self._savers[shared.ident] = save
        if len(data) <= MOST_EVENT:
            sealed = shared.seal(data, f"{stream}.{number}")
            self._events.append(LiveEvent(shared.ident, stream, number, sealed, int(last), time.time()))
            self._size += len(sealed)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write what waits. While the database is away it goes on waiting, within limits."""
        self._is_due = False
        savers, self._savers = self._savers, {}
        for save in savers.values():
            save()
        if not self._events:
            return
        try:
            self.store.keep_events(self._events)
        except StorageError:
            while self._size > MOST_WAITING:
                self._size -= len(self._events.pop(0).data)
            return
        self._events, self._size = [], 0

    def tick(self, idle_s: float) -> None:
        """Write again what could not be written, and remove old records; called about once a second."""
        if self._events:
            self.flush()
        if time.monotonic() - self._cleaned_at > CLEAN_S:
            self._cleaned_at = time.monotonic()
            with contextlib.suppress(StorageError):
                self.store.clean_up(time.time(), idle_s)
