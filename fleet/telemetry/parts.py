"""The parts of a proxy that begin and end spans, in place of the parts that do not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from foretool.fleet.telemetry import conventions
from foretool.fleet.telemetry.tracing import RequestFailure, RequestSpan, Tracing, read_failure
from foretool.server.clients.exchange import Caller, Exchange, Outbox
from foretool.server.config.loader import LiveConfig
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.server_requests import ServerRequests
from foretool.server.protocol import versions
from foretool.server.protocol.jsonrpc import UNSET, Id, Raw
from foretool.server.transports.client.base import Channel
from foretool.server.upstreams.connection import Connection, Request
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era


class TracedExchange(Exchange, eq=False):
    """A request of a client with its span."""

    tracing: Tracing | None = None
    span: RequestSpan | None = None

    def attempt(self, step: Callable[..., None], *arguments: Any) -> None:
        assert self.tracing is not None
        with self.tracing.step(self.span):
            Exchange.attempt(self, step, *arguments)

    def result(self, value: Raw) -> None:
        self._end(partial(read_failure, value, UNSET, self.method))
        Exchange.result(self, value)

    def raw_error(self, error: Raw) -> None:
        self._end(partial(read_failure, UNSET, error, self.method))
        Exchange.raw_error(self, error)

    def drop(self, reason: str) -> None:
        assert self.tracing is not None
        with self.tracing.step(self.span):
            was_done = self.done
            Exchange.drop(self, reason)
        if not was_done and self.span is not None:
            self.tracing.end(self.span, self, RequestFailure(conventions.CANCELLED))

    def _end(self, read: Callable[[], RequestFailure]) -> None:
        if not self.done and self.span is not None and self.tracing is not None:
            self.tracing.end(self.span, self, read())


def begin_exchange(
    tracing: Tracing, client: Caller, channel: Channel, outbox: Outbox, ident: Id, method: str, era: Era,
    params: dict[str, Raw], meta: dict[str, Raw], on_done: Callable[[Exchange], None],
) -> Exchange:  # fmt: skip
    """Make the exchange of a client's request, and begin its span."""
    exchange = TracedExchange(client, channel, outbox, ident, method, era, params, meta, on_done, tracing=tracing)
    exchange.span = tracing.begin(exchange)
    return exchange


class TracedConnection(Connection):
    """A connection whose own requests (the handshake, lists of tools, subscriptions) have spans. A request that a
    client has caused begins its span in `TracedForwarder`."""

    def __init__(self, tracing: Tracing, era: Era, upstream: Upstream) -> None:
        super().__init__(era, upstream)
        self._tracing = tracing
        self._name = upstream.name
        self._spans: dict[int, RequestSpan] = {}
        """By the id of the request."""

    def send(self, request: Request) -> None:
        # Nobody waits for the reply to a subscription: it comes when the connection ends.
        if request.exchange is None and request.method != "subscriptions/listen":
            version = versions.LATEST_MODERN if self.era == "modern" else self.server_info.version
            span = self._tracing.ask(self._name, version, request)
            super().send(request)
            if request.id and not span.is_over:
                self._spans[request.id] = span
                self._forget_ended()
            return
        super().send(request)

    def cancel(self, request: Request, reason: str) -> None:
        super().cancel(request, reason)
        if request.exchange is None and (span := self._spans.pop(request.id, None)) is not None:
            self._tracing.give_up(span)

    def _forget_ended(self) -> None:
        self._spans = {id: span for id, span in self._spans.items() if not span.is_over}


class TracedForwarder(Forwarder):
    """Begins a span with each request to a server."""

    def __init__(self, tracing: Tracing, outbox: Outbox, server_requests: ServerRequests, config: LiveConfig) -> None:
        super().__init__(outbox, server_requests, config)
        self._tracing = tracing

    def send(self, exchange: Exchange, upstream: Upstream, request: Request) -> None:
        if isinstance(exchange, TracedExchange) and exchange.span is not None:
            self._tracing.forward(upstream, request, exchange.span)
        super().send(exchange, upstream, request)
