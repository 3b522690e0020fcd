"""Sends traces and metrics to an OpenTelemetry collector, over HTTP as protobuf, from threads of its own.

The standard variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME` and so on) say where to and how. A collector
that is away, slow or silent costs what it does not take: queues are bounded, and nobody waits for them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Meter, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracerProvider, Tracer

from foretool._version import __version__
from foretool.fleet.telemetry import conventions
from foretool.server.system.logs import log_line

FLUSH_S: Final = 2.0
"""How long the end of the process waits for what is not sent yet."""
_TELL_S: Final = 3600.0
"""Pause between two lines of our log about the same collector."""
_MOST_SAID: Final = 300
_DEFAULT: Final = "http://localhost:4318"
_WELL_KNOWN: Final = "foretool"

log = logging.getLogger("foretool.telemetry")


class Unsuitable(Exception):
    """The environment asks for telemetry in a way that is not supported. The message is one line."""


class Sender:
    """Sends traces and metrics of one process. It registers nothing globally, so a program that uses foretool keeps its
    own."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        """Raises `Unsuitable`."""
        self.address = (environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or _DEFAULT).rstrip("/")
        self._ends: list[Callable[[], object]] = []
        protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
        if protocol != "http/protobuf":
            raise Unsuitable(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; only http/protobuf is sent")
        self._words = _Words()
        try:
            self._resource = _describe_process(environ)
            self._open(environ)
        except Exception as error:  # the boundary of a library that reads the environment
            self.end()
            raise Unsuitable(f"{type(error).__name__}: {error}") from error

    def _open(self, environ: Mapping[str, str]) -> None:
        self.tracer: Tracer = NoOpTracerProvider().get_tracer(_WELL_KNOWN)
        self.meter: Meter = NoOpMeterProvider().get_meter(_WELL_KNOWN)
        if environ.get("OTEL_TRACES_EXPORTER") != "none":
            traces = TracerProvider(resource=self._resource, shutdown_on_exit=False)
            traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            self.tracer = traces.get_tracer(_WELL_KNOWN, __version__)
            self._ends.append(traces.shutdown)
        if environ.get("OTEL_METRICS_EXPORTER") != "none":
            reader = PeriodicExportingMetricReader(OTLPMetricExporter())
            metrics = MeterProvider([reader], resource=self._resource, shutdown_on_exit=False)
            self.meter = metrics.get_meter(_WELL_KNOWN, __version__)
            self._ends.append(metrics.shutdown)

    def end(self) -> None:
        """Send what is left, for a moment; what a slow collector has not taken by then is lost."""
        threads = [threading.Thread(target=end, daemon=True) for end in self._ends]
        for thread in threads:
            thread.start()
        until = time.monotonic() + FLUSH_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            self._words.tell(f"the collector did not take the rest within {FLUSH_S:g} s")
        self._words.close()


def _describe_process(environ: Mapping[str, str]) -> Resource:
    described = {conventions.VERSION: __version__}
    if not environ.get("OTEL_SERVICE_NAME") and conventions.SERVICE not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        described[conventions.SERVICE] = _WELL_KNOWN
    return Resource.create(described)


class _Words(logging.Handler):
    """Says what the library complains about in one line of our log, and then nothing for a while."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told_at: float | None = None
        theirs = logging.getLogger("opentelemetry")
        theirs.addHandler(self)
        theirs.propagate = False

    def close(self) -> None:
        theirs = logging.getLogger("opentelemetry")
        theirs.removeHandler(self)
        theirs.propagate = True
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        self.tell(record.getMessage())

    def tell(self, said: str) -> None:
        now = time.monotonic()
        if self._told_at is None or now - self._told_at > _TELL_S:
            self._told_at = now
            log.warning("telemetry: %s; calls go on, and what is not taken is dropped", log_line(said)[:_MOST_SAID])
