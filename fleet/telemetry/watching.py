"""What watches one proxy, as its config asks: traces and metrics for a collector, `/metrics` for Prometheus."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from foretool.fleet.telemetry.observing import Meters, ObservedRecorder, Observer
from foretool.server.app import App, Parts
from foretool.server.config.loader import Config, LiveConfig
from foretool.server.setup.installation import install_command
from foretool.server.transports.client.http_request import HttpRequest
from foretool.storage.records import ToolId
from foretool.storage.redaction import hide_shapes
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.fleet.telemetry.prometheus import Metrics
    from foretool.fleet.telemetry.sending import Sender

log = logging.getLogger("foretool.telemetry")


class TelemetryWatch:
    """Makes a proxy with traces and metrics, from parts that record them."""

    def __init__(self, config: Config, *, http: bool) -> None:
        """`http`: whether the proxy serves HTTP, so that `/metrics` can be read."""
        self._parts = Parts()
        self._request_type = HttpRequest
        self._live = LiveConfig(config)
        self._app: App | None = None
        self._sender: Sender | None = None
        self._metrics: Metrics | None = None
        observers: list[Observer] = []
        if config.settings.telemetry != "off":
            self._trace(config, observers)
        if config.settings.metrics and http:
            self._count(observers)
        if observers:
            self._parts = self._parts._replace(recorder=partial(ObservedRecorder, tuple(observers)))

    @property
    def http(self) -> dict[str, Any]:
        """The arguments that an `HttpServer` gets in addition."""
        write = self._metrics.write if self._metrics is not None else None
        return {"request_type": self._request_type, "metrics": write}

    def make(self, config: Config, store: Store) -> App:
        """Make the watched proxy."""
        self._app = app = App(config, store, parts=self._parts)
        self._live = app.live
        if self._metrics is not None:
            self._metrics.attach(app)
        return app

    def end(self) -> None:
        """Send what is not sent yet. Takes `sending.FLUSH_S` at most."""
        if self._sender is not None:
            self._sender.end()

    def _trace(self, config: Config, observers: list[Observer]) -> None:
        try:
            from foretool.fleet.telemetry import sending
        except ImportError as error:
            log.error("telemetry: %s is not installed; %s", error.name, install_command("otel"))
            return
        from foretool.fleet.telemetry.parts import TracedConnection, TracedForwarder, begin_exchange
        from foretool.fleet.telemetry.propagation import TracedRequest
        from foretool.fleet.telemetry.tracing import Tracing

        try:
            self._sender = sender = sending.Sender()
        except sending.Unsuitable as error:
            log.error("telemetry: nothing is sent: %s", error)
            return
        meters = Meters(sender.meter)
        content = self._hide if config.settings.telemetry == "full" else _nothing
        tracing = Tracing(sender.tracer, meters, self._has_tool, self._find_address, content)
        self._parts = Parts(
            exchange=partial(begin_exchange, tracing),
            forwarder=partial(TracedForwarder, tracing),
            connection=partial(TracedConnection, tracing),
        )
        self._request_type = TracedRequest
        observers += [tracing, meters]
        log.info("telemetry: sent to %s", sender.address)

    def _count(self, observers: list[Observer]) -> None:
        try:
            from foretool.fleet.telemetry.prometheus import Metrics
        except ImportError as error:
            log.error("metrics: %s is not installed; %s", error.name, install_command("metrics"))
            return
        self._metrics = Metrics()
        observers.append(self._metrics)

    def _has_tool(self, name: str) -> bool:
        from foretool.server.catalog.names import OWN

        return name in OWN or (self._app is not None and self._app.catalog.get(ToolId(name)) is not None)

    def _find_address(self, name: str) -> tuple[str, int] | None:
        server = self._live.now.servers.get(name)
        if server is None or not server.entry.url:
            return None
        parts = urlsplit(server.entry.url)
        try:
            port = parts.port
        except ValueError:
            return None
        return parts.hostname or "", port or (80 if parts.scheme == "http" else 443)

    def _hide(self, text: str) -> str:
        """Return a text without secrets."""
        return hide_shapes(self._live.redact(text))


def _nothing(text: str) -> str:
    return ""
