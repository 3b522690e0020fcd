"""Proxies whose spans and metrics stay in memory, and a collector that reads what a running one sends."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from fakes import FakeUpstream, Stage, proxy_over
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from foretool.fleet.telemetry.observing import Meters, ObservedRecorder, Observer
from foretool.fleet.telemetry.parts import TracedConnection, TracedForwarder, begin_exchange
from foretool.fleet.telemetry.tracing import Tracing
from foretool.server.app import Parts
from foretool.storage.records import ToolId


class Watched(NamedTuple):
    """A running proxy, and what it has emitted."""

    stage: Stage
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    def spans(self, kind: str = "") -> list[ReadableSpan]:
        """Those that have ended, in the order of their ends."""
        return [each for each in self.exporter.get_finished_spans() if not kind or each.kind.name == kind]

    def span(self, name: str, kind: str = "") -> ReadableSpan:
        (found,) = [each for each in self.spans(kind) if each.name == name]
        return found

    def points(self, metric: str, method: str = "") -> list[Any]:
        """The data points of a metric, those of one method if one is named."""
        read = self.reader.get_metrics_data()
        return [
            point
            for resource in (read.resource_metrics if read else ())
            for scope in resource.scope_metrics
            for each in scope.metrics
            if each.name == metric
            for point in each.data.data_points
            if not method or point.attributes["mcp.method.name"] == method
        ]


@asynccontextmanager
async def watched(
    *upstreams: FakeUpstream, content: Callable[[str], str] = lambda text: "", observers: Sequence[Observer] = (),
    address: tuple[str, int] | None = None, **settings: Any,
) -> AsyncIterator[Watched]:  # fmt: skip
    """The real proxy over these upstreams, traced."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    traces = TracerProvider(shutdown_on_exit=False)
    traces.add_span_processor(SimpleSpanProcessor(exporter))
    metrics = MeterProvider([reader], shutdown_on_exit=False)
    meters, stages = Meters(metrics.get_meter("test")), []

    def exists(name: str) -> bool:
        return stages[0].app.catalog.get(ToolId(name)) is not None or name == "discover_tools"

    tracing = Tracing(traces.get_tracer("test"), meters, exists, lambda name: address, content)
    parts = Parts(
        partial(ObservedRecorder, (tracing, meters, *observers)),
        partial(TracedForwarder, tracing),
        partial(begin_exchange, tracing),
        partial(TracedConnection, tracing),
    )
    async with proxy_over(*upstreams, parts=parts, **settings) as stage:
        stages.append(stage)
        yield Watched(stage, exporter, reader)
    traces.shutdown()
    metrics.shutdown()


class Collector:
    """Takes OTLP over HTTP and keeps what came."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.metrics: dict[str, Any] = {}
        self.stuck = threading.Event()
        """Set: it answers nothing until it ends."""
        self._ended = threading.Event()
        self._news = threading.Condition()

    def take(self, path: str, body: bytes) -> None:
        with self._news:
            if path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    attributes = attributes_of(resource.resource)
                    self.services.add(attributes["service.name"])
                    for scope in resource.scope_spans:
                        for span in scope.spans:
                            self.spans.append((attributes["service.name"], span))
            elif path == "/v1/metrics":
                for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for scope in resource.scope_metrics:
                        self.metrics |= {each.name: each for each in scope.metrics}
            self._news.notify_all()

    def wait_for(self, holds: Callable[[], bool], patience: float = 30.0) -> None:
        with self._news:
            assert self._news.wait_for(holds, patience), [span.name for _, span in self.spans]

    def end(self) -> None:
        self._ended.set()

    def hang(self) -> None:
        self._ended.wait(60)


def attributes_of(holder: Any) -> dict[str, Any]:
    """The attributes of a span, an event or a resource of the protocol."""
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in holder.attributes}


@contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    """A collector, and its address."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if collector.stuck.is_set():
                collector.hang()
            collector.take(self.path, body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass  # the one that sent has gone

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        collector.end()
        server.shutdown()
        server.server_close()
        thread.join(10)
