"""Metrics for OpenTelemetry: durations as the conventions name them, and what only foretool knows."""

from __future__ import annotations

import time
from collections.abc import Mapping

from opentelemetry.metrics import Histogram, Meter

from foretool.fleet.telemetry import conventions
from foretool.fleet.telemetry.observing import Observer
from foretool.storage.records import Discovery, Exposure, Miss, SessionRecord

Labels = Mapping[str, str | int | bool]


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
