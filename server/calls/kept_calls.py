"""Where the calls that take long are kept: in memory while they run here, in the store for every proxy."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, field
from msgspec.json import Decoder
from msgspec.structs import replace

from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import LiveConfig
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Message, Raw
from foretool.server.recording.recorder import Recorder
from foretool.server.system.processes import is_running, machine_name
from foretool.server.trust.policy import TrustPolicy
from foretool.server.upstreams.memory import find_proxies
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.storage.engine import StorageError
from foretool.storage.records import Call, KeptCall, Outcome
from foretool.storage.store import Store

MOST_KEPT: Final = 100
"""Calls of one owner that are kept; the oldest make room."""
_MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of the results that are kept for one owner."""
_FORGET_S: Final = 60.0
"""Pause between two looks for results whose time is over."""

log = logging.getLogger("foretool.long_calls")


_decode_call = Decoder(Call).decode


class LongCall(Struct, eq=False):
    """A call that takes longer than its client waits, and runs in this process or in another one."""

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
    """Takes the answer of a call whose client does not wait for it."""

    def __init__(self, take: Callable[[Message], None]) -> None:
        self._take = take

    def send(self, data: bytes) -> None:
        self._take(jsonrpc.decode(data))

    def finish(self, data: bytes, code: int | None) -> None:
        self._take(jsonrpc.decode(data))

    def poll(self) -> None: ...

    def end(self) -> None: ...


class KeptCalls:
    """Finds, saves and forgets long calls. What the store refuses stays in memory until it can be written."""

    def __init__(
        self, live: LiveConfig, store: Store, policy: TrustPolicy, upstreams: UpstreamRegistry, recorder: Recorder
    ) -> None:
        self._live = live
        self._policy = policy
        self._upstreams = upstreams
        self._recorder = recorder
        self._store = store.kept_calls
        self._serving = store.serving
        self.now = recorder.now
        self.here: dict[str, LongCall] = {}
        """By id: those that run here, that somebody waits for, or that are not in the store."""
        self.process = (machine_name(), os.getpid(), time.time())
        self._forgot_at = 0.0

    def find(self, exchange: Exchange, ident: str) -> LongCall | None:
        """Return a call that this client may ask for. Raises `StorageError`."""
        call = self.here.get(ident)
        if call is None and (row := self._store.find(ident)) is not None and row.until > self.now():
            call = LongCall(row, started=time.perf_counter() - max(self.now() - row.started_at, 0.0))
        if call is None or call.row.owner != owner_of(exchange):
            return None
        server = call.row.upstream
        if not server:
            return call  # a list of calls
        is_there = self._upstreams.get(server) is not None
        return call if is_there and self._policy.reach(exchange.client.profile).admits(server) else None

    def load(self, call: LongCall) -> None:
        """Take over what another process has stored about a call. Raises `StorageError`."""
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
        call.is_saved = self._write(call)
        if not call.is_saved or call.exchange is not None:
            self.here[call.row.ident] = call
        else:
            self.here.pop(call.row.ident, None)
        self._trim(call.row.owner)

    def record(self, call: LongCall, outcome: Outcome) -> None:
        """Record once, by what is stored with it, a call that another process began."""
        if not call.row.record:
            return
        took_ms = (self.now() - call.row.started_at) * 1000
        self._recorder.call(replace(_decode_call(call.row.record), outcome=outcome, took_ms=took_ms), ())
        call.row = replace(call.row, record="")
        self._write(call)

    def shorten(self, call: LongCall, until: float) -> None:
        """Forget a call at this time if it would have been kept longer."""
        self._try(lambda: self._store.shorten(call.row.ident, until))

    def tidy(self) -> None:
        """Write what could not be written, and forget what is over; called about once a second."""
        for ident, call in list(self.here.items()):
            if not call.is_saved:
                self.save(call)
            if call.exchange is None and not call.waiting and (call.is_saved or call.row.until < self.now()):
                self.here.pop(ident, None)
        if time.perf_counter() - self._forgot_at >= _FORGET_S:
            self._forgot_at = time.perf_counter()
            self._try(lambda: self._store.forget_old(self.now()))

    def _write(self, call: LongCall) -> bool:
        return self._live.settings.record != "off" and self._try(lambda: self._store.save(call.row))

    def _trim(self, owner: str) -> None:
        """Make room where more is kept for an owner than may be, in the store and in memory."""
        self._try(lambda: self._store.trim(owner, MOST_KEPT, _MOST_BYTES))
        left = _MOST_BYTES
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


def owner_of(exchange: Exchange) -> str:
    """Return who may ask for the result of a client's calls: its credential and its profile."""
    return jsonrpc.encode([exchange.client.principal, exchange.client.profile.name]).decode()
