"""What happened, as the recorder hears of it: the same calls, misses, searches and lists that the ledger gets; and the
metrics for OpenTelemetry that are made of it: durations as the conventions name them, and what only foretool knows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from foretool.fleet.telemetry import conventions
from foretool.server.config.loader import LiveConfig
from foretool.server.recording.recorder import Recorder
from foretool.storage.records import Call, Discovery, Exposure, Miss, Person, SessionRecord
from foretool.storage.store import Store

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter

Labels = Mapping[str, str | int | bool]


class Observer:
    """Takes what happened; each method returns at once. A subclass overrides those that it needs."""

    def on_call(self, call: Call) -> None:
        """A call of a tool has ended."""

    def on_miss(self, miss: Miss) -> None:
        """A tool was needed that the client did not see."""

    def on_discovery(self, discovery: Discovery) -> None:
        """A search was answered."""

    def on_exposure(self, exposure: Exposure) -> None:
        """A list, or another text with tools, goes to a client."""

    def on_session(self, session: SessionRecord) -> None:
        """A session began."""

    def on_session_end(self, key: str) -> None:
        """A session has ended."""


class ObservedRecorder(Recorder):
    """Tells observers what it records, also what the store refuses."""

    def __init__(
        self, observers: Sequence[Observer], store: Store, config: LiveConfig, clock: Callable[[], float]
    ) -> None:
        super().__init__(store, config, clock)
        self._observers = observers

    def call(self, call: Call, misses: Sequence[Miss] = ()) -> None:
        super().call(call, misses)
        for observer in self._observers:
            observer.on_call(call)
            for miss in misses:
                observer.on_miss(miss)

    def miss(self, miss: Miss) -> None:
        super().miss(miss)
        for observer in self._observers:
            observer.on_miss(miss)

    def exposure(self, exposure: Exposure) -> int:
        for observer in self._observers:
            observer.on_exposure(exposure)
        return super().exposure(exposure)

    def discovery(self, discovery: Discovery) -> int:
        for observer in self._observers:
            observer.on_discovery(discovery)
        return super().discovery(discovery)

    def begin_session(self, session: SessionRecord, person: Person | None = None) -> None:
        for observer in self._observers:
            observer.on_session(session)
        super().begin_session(session, person)

    def end_session(self, key: str) -> None:
        for observer in self._observers:
            observer.on_session_end(key)
        super().end_session(key)


class Meters(Observer):
    """The instruments of one process."""

    def __init__(self, meter: Meter) -> None:
        bounds = conventions.BUCKETS_S
        meanings = {name: meaning for name, _, meaning in conventions.METRICS}

        def durations(name: str) -> Histogram:
            return meter.create_histogram(name, "s", meanings[name], explicit_bucket_boundaries_advisory=bounds)

        self._server = durations(conventions.SERVER_DURATION)
        self._client = durations(conventions.CLIENT_DURATION)
        self._sessions = durations(conventions.SESSION_DURATION)
        self._searches = meter.create_counter(conventions.SEARCHES, "{search}", meanings[conventions.SEARCHES])
        self._misses = meter.create_counter(conventions.MISSES, "{miss}", meanings[conventions.MISSES])
        self._list_tokens = meter.create_histogram(
            conventions.LIST_TOKENS, "{token}", meanings[conventions.LIST_TOKENS]
        )
        self._began: dict[str, float] = {}

    def server(self, took_s: float, labels: Labels) -> None:
        """Record how long a request of a client took."""
        self._server.record(took_s, labels)

    def client(self, took_s: float, labels: Labels) -> None:
        """Record how long a server took to answer."""
        self._client.record(took_s, labels)

    def on_miss(self, miss: Miss) -> None:
        self._misses.add(1, {conventions.CAUSE: miss.cause})

    def on_discovery(self, discovery: Discovery) -> None:
        self._searches.add(1, {conventions.LEVEL: discovery.level})

    def on_exposure(self, exposure: Exposure) -> None:
        self._list_tokens.record(exposure.tokens, {conventions.REASON: exposure.reason})

    def on_session(self, session: SessionRecord) -> None:
        self._began.setdefault(session.key, time.monotonic())

    def on_session_end(self, key: str) -> None:
        if (began := self._began.pop(key, None)) is not None:
            self._sessions.record(time.monotonic() - began)
