"""`/metrics` for Prometheus: what has happened since the start, and what is so at the moment of a scrape."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from foretool._version import __version__
from foretool.fleet.telemetry import conventions
from foretool.fleet.telemetry.observing import Observer
from foretool.server.app import App
from foretool.server.upstreams.upstream import State
from foretool.storage.records import Call, Discovery, Exposure, Miss

_DURATIONS_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_TOKENS: Final = (250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000)
_TOOLS: Final = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_LISTS: Final = frozenset({"list", "growth", "epoch"})
"""Reasons of exposures that are lists."""

_MEANINGS: Final = {name: meaning for name, _, meaning in conventions.SCRAPED}


class Metrics(Observer):
    """Counts for `/metrics`. Servers, outcomes and causes are the only labels, so nobody outside can add a series."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, *labels: str) -> Counter:
            return Counter(name, _MEANINGS[name], labels, registry=registry)

        def histogram(name: str, buckets: Iterable[float], *labels: str) -> Histogram:
            return Histogram(name, _MEANINGS[name], labels, buckets=tuple(buckets), registry=registry)

        self._calls = counter("foretool_calls", "server", "outcome")
        self._call_seconds = histogram("foretool_call_seconds", _DURATIONS_S, "server")
        self._discoveries = counter("foretool_discoveries", "level")
        self._discovery_seconds = histogram("foretool_discovery_seconds", _DURATIONS_S)
        self._misses = counter("foretool_misses", "cause")
        self._lists = counter("foretool_lists", "reason")
        self._list_tokens = histogram("foretool_list_tokens", _TOKENS)
        self._list_tools = histogram("foretool_list_tools", _TOOLS)
        self._state: _State | None = None
        self._writing = asyncio.Lock()

    def attach(self, app: App) -> None:
        """Include the state of this proxy in the metrics from now on."""
        self._state = _State(app)

    async def write(self, accepted: str) -> tuple[bytes, str]:
        """Return the metrics and their Content-Type, in the newest format that an Accept header names."""
        encode, kind = choose_encoder(accepted)
        async with self._writing:  # one at a time, however many ask
            state = self._state.collect() if self._state is not None else []
            # In a thread: with hundreds of servers it takes a tenth of a second, and no call should wait for that.
            return await asyncio.to_thread(encode, _Whole(self._registry, state)), kind

    # -- what happened

    def on_call(self, call: Call) -> None:
        self._calls.labels(call.upstream, call.outcome).inc()
        if call.sent:
            self._call_seconds.labels(call.upstream).observe(call.took_ms / 1000)

    def on_miss(self, miss: Miss) -> None:
        self._misses.labels(miss.cause).inc()

    def on_discovery(self, discovery: Discovery) -> None:
        self._discoveries.labels(discovery.level).inc()
        self._discovery_seconds.observe(discovery.took_ms / 1000)

    def on_exposure(self, exposure: Exposure) -> None:
        if exposure.reason in _LISTS:
            self._lists.labels(exposure.reason).inc()
            self._list_tokens.observe(exposure.tokens)
            self._list_tools.observe(len(exposure.tools))


class _Whole(NamedTuple):
    """What one scrape gets: the counts, and what was so when it came."""

    counts: CollectorRegistry
    state: Sequence[Metric]

    def collect(self) -> Iterator[Metric]:
        yield from self.counts.collect()
        yield from self.state


class _State:
    """Reads the proxy at each scrape."""

    def __init__(self, app: App) -> None:
        self._app = app

    def collect(self) -> list[Metric]:
        app = self._app
        clients = list(app.clients)
        build = InfoMetricFamily("foretool_build", _MEANINGS["foretool_build"])
        build.add_metric([], {"version": __version__, "python": platform.python_version()})
        return [
            build,
            *self._describe_servers(),
            _gauge("foretool_tools", len(app.catalog)),
            _gauge("foretool_clients", len(clients)),
            _gauge("foretool_sessions", sum(len(client.sessions()) for client in clients)),
            _gauge("foretool_requests_in_flight", sum(client.in_flight for client in clients)),
            _gauge("foretool_records_waiting", app.recorder.backlog.waiting),
            _counter("foretool_records_lost", app.recorder.backlog.dropped),
            _counter("foretool_store_failures", app.recorder.backlog.failures),
        ]

    def _describe_servers(self) -> list[Metric]:
        state = GaugeMetricFamily(
            "foretool_server_state", _MEANINGS["foretool_server_state"], labels=["server", "state"]
        )
        starts = CounterMetricFamily("foretool_server_starts", _MEANINGS["foretool_server_starts"], labels=["server"])
        open_ = GaugeMetricFamily(
            "foretool_server_in_flight", _MEANINGS["foretool_server_in_flight"], labels=["server"]
        )
        for upstream in self._app.upstreams:
            for each in State:
                state.add_metric([upstream.name, each.value], float(upstream.state is each))
            starts.add_metric([upstream.name], upstream.starts)
            open_.add_metric([upstream.name], upstream.in_flight)
        return [state, starts, open_]


def _gauge(name: str, value: float) -> Metric:
    return GaugeMetricFamily(name, _MEANINGS[name], value=value)


def _counter(name: str, value: float) -> Any:
    return CounterMetricFamily(name, _MEANINGS[name], value=value)
