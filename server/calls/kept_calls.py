"""Where the calls that take long are kept: in memory while they run here, in the store for every proxy."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, field

from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import LiveConfig
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Message, Raw
from foretool.server.system.processes import is_running, machine_name
from foretool.server.upstreams.memory import find_proxies
from foretool.storage.engine import StorageError
from foretool.storage.records import KeptCall
from foretool.storage.store import Store

MOST_KEPT: Final = 100
"""Calls of one owner that are kept; the oldest make room."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of the results that are kept for one owner."""
FORGET_S: Final = 60.0
"""Pause between two looks for results whose time is over."""

log = logging.getLogger("foretool.long_calls")


class LongCall(Struct, eq=False):
    """A call that goes on here, or that another process waits for."""

    row: KeptCall
    exchange: Exchange | None = None
    """Is answered with what comes of it; None where another process waits for it, or it is over."""
    started: float = field(default_factory=time.perf_counter)
    waiting: list[Exchange] = field(default_factory=list)
    """Requests of `call_result` that wait for it."""
    questions: list[tuple[Any, bytes]] = field(default_factory=list)
    """Questions of its server, by id, which nobody who waits has got yet."""
    input_wanted: Raw | None = None
    """A result that asks a modern client for input, which nobody has got yet."""
    progress: str = ""
    is_saved: bool = True


class Inbox:
    """The channel of an exchange whose client does not wait."""

    def __init__(self, take: Callable[[Message], None]) -> None:
        self._take = take

    def send(self, data: bytes) -> None:
        self._take(jsonrpc.decode(data))

    def finish(self, data: bytes, code: int | None) -> None:
        self._take(jsonrpc.decode(data))

    def poll(self) -> None:
        """Nobody polls here."""

    def end(self) -> None:
        """`Exchange.on_drop` tells of it."""


class KeptCalls:
    """Finds, saves and forgets long calls. What the store refuses stays in memory until it can be written."""

    def __init__(self, live: LiveConfig, store: Store, now: Callable[[], float]) -> None:
        self._live = live
        self._store = store.kept_calls
        self._serving = store.serving
        self._now = now
        self.here: dict[str, LongCall] = {}
        """By id: those that run here, that somebody waits for, or that are not in the store."""
        self.process = (machine_name(), os.getpid(), time.time())
        self._forgot_at = 0.0

    def find(self, ident: str, owner: str) -> LongCall | None:
        """Return a call of an owner. Raises `StorageError`."""
        call = self.here.get(ident)
        if call is None and (row := self._store.find(ident)) is not None and row.until > self._now():
            call = LongCall(row, started=time.perf_counter() - max(self._now() - row.started_at, 0.0))
        return call if call is not None and call.row.owner == owner else None

    def load(self, call: LongCall) -> None:
        """Take in what another process has written of a call. Raises `StorageError`."""
        call.row = self._store.find(call.row.ident) or call.row

    def count(self, owner: str) -> int:
        """Return how many calls of an owner run here."""
        return sum(call.row.owner == owner and call.exchange is not None for call in self.here.values())

    def is_served(self, row: KeptCall) -> bool:
        """Return whether the process that waits for a call still runs. Raises `StorageError`."""
        if row.machine == self.process[0]:
            return is_running(row.pid, row.process_at)
        proxies = find_proxies(self._serving.states())
        return any(each.is_running and (each.machine, each.pid) == (row.machine, row.pid) for each in proxies)

    def save(self, call: LongCall) -> None:
        """Write a call, if content may be written at all, and make room for it."""
        may_write = self._live.settings.record != "off"
        call.is_saved = may_write and self._try(lambda: self._store.save(call.row))
        if not call.is_saved or call.exchange is not None:
            self.here[call.row.ident] = call
        else:
            self.here.pop(call.row.ident, None)
        if call.row.reply:
            self._trim(call.row.owner)

    def shorten(self, call: LongCall, until: float) -> None:
        """Forget a call earlier than it was to be."""
        self._try(lambda: self._store.shorten(call.row.ident, until))

    def tidy(self) -> None:
        """Write what could not be written, and forget what is over; called about once a second."""
        for ident, call in list(self.here.items()):
            if not call.is_saved:
                self.save(call)
            if call.exchange is None and not call.waiting and (call.is_saved or call.row.until < self._now()):
                self.here.pop(ident, None)
        if time.perf_counter() - self._forgot_at >= FORGET_S:
            self._forgot_at = time.perf_counter()
            self._try(lambda: self._store.forget_old(self._now()))

    def _trim(self, owner: str) -> None:
        """Make room where more is kept for an owner than may be, in the store and in memory."""
        self._try(lambda: self._store.trim(owner, MOST_KEPT, MOST_BYTES))
        left = MOST_BYTES
        over = [call for call in self.here.values() if call.row.owner == owner and call.exchange is None]
        for place, call in enumerate(sorted(over, key=lambda each: -each.row.started_at)):
            left -= len(call.row.reply)
            if (place >= MOST_KEPT or left < 0) and not call.waiting:
                del self.here[call.row.ident]

    def _try(self, write: Callable[[], object]) -> bool:
        try:
            write()
        except StorageError as error:
            log.warning("calls that take long: %s", error)
            return False
        return True
