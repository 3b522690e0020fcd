"""Spans of requests: one for each request of a client, one below it for each that goes to a server because of it, and
one for each request of our own to a server, such as a handshake or a list of its tools.

A request is answered in steps between which others run, so there is no ambient span. `Tracing.now` is the span whose
step runs at the moment, and what the recorder hears meanwhile belongs to it.

Texts of strangers are values in traces and metrics: short, visible, and few where each makes a series of its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context

from foretool.fleet.telemetry import conventions, propagation
from foretool.fleet.telemetry.observing import Meters, Observer
from foretool.server.protocol import jsonrpc, translate, versions
from foretool.server.protocol.jsonrpc import Raw, UnsetType
from foretool.server.system.logs import log_line
from foretool.server.upstreams.connection import Lost, Reply, Request
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Call, Discovery, Exposure, Miss

if TYPE_CHECKING:
    from foretool.server.clients.exchange import Exchange


MOST_TEXT: Final = 200
"""Characters of a name on a span."""
MOST_TOOLS: Final = 200
"""Tools that get a series of their own in metrics, the first that are called."""


def shorten(text: str, most: int = MOST_TEXT) -> str:
    """Return a text as one line of visible characters, cut to a length."""
    # What a half of a surrogate pair would do to a batch: its encoder refuses all of it.
    return log_line(text[:most].encode("utf-8", "replace").decode())


def name_method(method: str) -> str:
    """Return a method of MCP, or one common name for all others."""
    return method if method in conventions.METHODS else conventions.OTHER


def name_error(kind: str) -> str:
    """Return the name of an error code or failure, or one common name for codes that are not the protocol's."""
    return kind if kind in conventions.ERRORS else conventions.OTHER


class ToolNames:
    """Chooses the tool names that metrics show. `exists` tells whether a tool of this name exists, because clients may
    call any name."""

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self._exists = exists
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        """Return the name, or one common name for tools beyond the limit and names that no tool has."""
        if name in self._known:
            return name
        if len(self._known) < MOST_TOOLS and len(name) <= MOST_TEXT and self._exists(name):
            self._known.add(name)
            return shorten(name)
        return conventions.OTHER_TOOL


_MOST_CONTENT: Final = 8192
"""Bytes of arguments or of a result that a span may hold; larger ones are left out."""

Attributes = dict[str, str | int | bool]


class RequestFailure(NamedTuple):
    """Why a request failed: `error.type` ("" if it did not), the JSON-RPC code, and what the error says."""

    kind: str = ""
    code: int | None = None
    said: str = ""


_WELL: Final = RequestFailure()


class RequestSpan:
    """The span of one request, and what metrics say of it. `context`: of whoever sent it."""

    def __init__(self, span: Span, context: Context, labels: Attributes, tool: str | None = None) -> None:
        """`tool`: the name of the tool that is called, None for other requests."""
        self.span = span
        self.tool = tool
        self.context = context
        self.labels = labels
        self.children: set[RequestSpan] = set()
        """Requests to servers that are not answered."""
        self.is_over = False
        self._started = time.perf_counter()

    def end(self, failure: RequestFailure, content: Callable[[str], str]) -> float:
        """End it; return how many seconds it took."""
        self.is_over = True
        if failure.kind:
            self.labels[conventions.ERROR] = name_error(failure.kind)
            self.span.set_attribute(conventions.ERROR, failure.kind)
            if failure.kind != conventions.CANCELLED:
                # An error quotes arguments and results as it likes.
                self.span.set_status(StatusCode.ERROR, shorten(content(failure.said[:_MOST_CONTENT])) or None)
        if failure.code is not None:
            self.labels[conventions.STATUS_CODE] = name_error(str(failure.code))
            self.span.set_attribute(conventions.STATUS_CODE, str(failure.code))
        self.span.end()
        return time.perf_counter() - self._started


class Tracing(Observer):
    """Begins and ends spans. `exists` tells whether there is a tool of an exposed name, `address` returns host and port
    of a remote server by its name in the config, and `content` what may leave of a text: "" for nothing."""

    def __init__(
        self, tracer: Tracer, meters: Meters, exists: Callable[[str], bool],
        address: Callable[[str], tuple[str, int] | None], content: Callable[[str], str],
    ) -> None:  # fmt: skip
        self._tracer = tracer
        self._meters = meters
        self._tools = ToolNames(exists)
        self._own_tools = ToolNames(lambda _: True)  # only what a server has listed is asked of it
        self._address = address
        self._content = content
        self.now: RequestSpan | None = None

    @contextmanager
    def step(self, request: RequestSpan | None) -> Iterator[None]:
        """Run one step of a request: what is recorded within belongs to it."""
        before, self.now = self.now, request
        try:
            yield
        finally:
            self.now = before

    # -- requests of clients

    def begin(self, exchange: Exchange) -> RequestSpan:
        """Begin the span of a client's request."""
        context = propagation.read_context(exchange.meta)
        client, method = exchange.client, name_method(exchange.method)
        labels: Attributes = {conventions.METHOD: method, **_transport(client.transport, client.folder)}
        more: Attributes = {conventions.REQUEST_ID: shorten(str(exchange.id))}
        if client.profile.name:
            more[conventions.PROFILE] = client.profile.name
        tool = _read_target(method, exchange.params, labels, more)
        span = self._tracer.start_span(method, context, SpanKind.SERVER, {**labels, **more})
        return RequestSpan(span, context, labels, tool)

    def end(self, request: RequestSpan, exchange: Exchange, failure: RequestFailure = _WELL) -> None:
        """End the span of a client's request; what it asked servers for is given up with it."""
        for child in list(request.children):
            self._end_child(request, child, RequestFailure(conventions.CANCELLED))
        version = versions.LATEST_MODERN if exchange.era == "modern" else exchange.client.version
        session = exchange.session
        more: Attributes = _protocol(version)
        # Its server may have listed the tool only now.
        self._name(request, self._tools)
        request.labels |= more
        if session is not None:
            more[conventions.SESSION] = session.record.key
            more[conventions.CLIENT] = shorten(session.record.client)
        request.span.set_attributes(more)
        self._meters.server(request.end(failure, self._content), request.labels)

    # -- requests to servers

    def forward(self, upstream: Upstream, request: Request, parent: RequestSpan) -> None:
        """Begin the span of a request to a server, and have it end with the reply."""
        above = set_span_in_context(parent.span, Context())
        child = self._begin_sent(upstream.name, upstream.server_info.version, request, above, parent.context)
        parent.children.add(child)
        reply = request.reply

        def on_reply(answer: Reply) -> None:
            self._end_child(parent, child, self._read_reply(child, answer))
            with self.step(parent):
                reply(answer)

        request.reply = on_reply

    def ask(self, server: str, version: str, request: Request) -> RequestSpan:
        """Begin the span of a request of our own to a server, which no client has caused: a trace by itself. It ends
        with the reply. `version`: that of the protocol, "" before it is agreed on."""
        asked = self._begin_sent(server, version, request, Context(), Context())
        reply = request.reply

        def on_reply(answer: Reply) -> None:
            self._end_asked(asked, self._read_reply(asked, answer))
            reply(answer)

        request.reply = on_reply
        return asked

    def give_up(self, asked: RequestSpan) -> None:
        """End the span of a request of our own whose reply nobody waits for any more."""
        self._end_asked(asked, RequestFailure(conventions.CANCELLED))

    def _begin_sent(self, server: str, version: str, request: Request, above: Context, context: Context) -> RequestSpan:
        """Begin the span of a request to a server, and have its `_meta` name it. `context`: of whoever caused it."""
        method, address = name_method(request.method), self._address(server)
        labels: Attributes = {
            conventions.METHOD: method,
            conventions.UPSTREAM: server,
            **_protocol(version),
            **_transport("http" if address else "stdio"),
        }
        if address:
            labels[conventions.ADDRESS], labels[conventions.PORT] = address
        more: Attributes = {}
        tool = _read_target(method, request.params, labels, more)
        if method == "tools/call" and (arguments := request.params.get("arguments")) is not None:
            self._add_content(more, conventions.ARGUMENTS, arguments)
        span = self._tracer.start_span(method, above, SpanKind.CLIENT, {**labels, **more})
        sent = RequestSpan(span, context, labels, tool)
        self._name(sent, self._own_tools)
        told = propagation.write_context(span, context)
        build = request.build_meta

        def build_meta(of: Any) -> dict[str, Raw]:
            span.set_attribute(conventions.REQUEST_ID, str(request.id))
            kept = (build(of) if build is not None else None) or {}
            if told:
                kept = {key: value for key, value in kept.items() if key not in (propagation.PARENT, propagation.STATE)}
            return kept | told

        request.build_meta = build_meta
        return sent

    @staticmethod
    def _name(request: RequestSpan, tools: ToolNames) -> None:
        """Name a span after its tool, if that is one of the few that metrics name."""
        if request.tool is not None:
            request.labels[conventions.TOOL] = named = tools.label(request.tool)
            if named != conventions.OTHER_TOOL:
                request.span.update_name(f"{request.labels[conventions.METHOD]} {named}")

    def _read_reply(self, sent: RequestSpan, answer: Reply) -> RequestFailure:
        """Return why a request to a server failed, `_WELL` if it did not."""
        if isinstance(answer, Lost):
            return RequestFailure(conventions.LOST, said=answer.reason)
        method = str(sent.labels[conventions.METHOD])
        if method == "tools/call" and isinstance(answer.result, Raw):
            more: Attributes = {}
            self._add_content(more, conventions.RESULT, answer.result)
            sent.span.set_attributes(more)
        return read_failure(answer.result, answer.error, method)

    def _end_asked(self, asked: RequestSpan, failure: RequestFailure) -> None:
        if not asked.is_over:
            self._meters.client(asked.end(failure, self._content), asked.labels)

    def _end_child(self, parent: RequestSpan, child: RequestSpan, failure: RequestFailure) -> None:
        if child in parent.children:
            parent.children.discard(child)
            self._meters.client(child.end(failure, self._content), child.labels)

    def _add_content(self, more: Attributes, key: str, value: Raw) -> None:
        if memoryview(value).nbytes <= _MOST_CONTENT and (text := self._content(bytes(value).decode(errors="replace"))):
            more[key] = text

    # -- what happens meanwhile

    def on_call(self, call: Call) -> None:
        if self.now is not None:
            self.now.span.set_attributes(
                {
                    conventions.CALLED: shorten(call.tool),
                    conventions.UPSTREAM: shorten(call.upstream),
                    conventions.VIA: call.via,
                    conventions.HIDDEN: call.hidden,
                }
            )

    def on_miss(self, miss: Miss) -> None:
        if self.now is not None:
            self.now.span.add_event(
                conventions.MISS,
                {
                    conventions.CALLED: shorten(miss.tool),
                    conventions.CAUSE: miss.cause,
                    conventions.NOTICED: miss.noticed,
                    conventions.RECOVERED: miss.recovered,
                },
            )

    def on_discovery(self, discovery: Discovery) -> None:
        if self.now is None:
            return
        found: Attributes = {
            conventions.OPERATION: conventions.RETRIEVAL,
            conventions.SOURCE: "foretool",
            conventions.LEVEL: discovery.level,
            conventions.MATCHES: len(discovery.matches),
            conventions.TOKENS: discovery.tokens,
        }
        if asked := self._content(discovery.task[:_MOST_CONTENT]):
            found[conventions.QUERY] = asked
        above = set_span_in_context(self.now.span, Context())
        began = time.time_ns() - int(discovery.took_ms * 1e6)
        name = f"{conventions.RETRIEVAL} foretool"
        self._tracer.start_span(name, above, SpanKind.INTERNAL, found, start_time=began).end()

    def on_exposure(self, exposure: Exposure) -> None:
        if self.now is not None:
            self.now.span.add_event(
                conventions.LISTED,
                {
                    conventions.TOOLS: len(exposure.tools),
                    conventions.TOKENS: exposure.tokens,
                    conventions.REASON: exposure.reason,
                },
            )


def read_failure(result: Raw | UnsetType, error: Raw | UnsetType, method: str) -> RequestFailure:
    """Return why a reply is an error, `_WELL` if it is none."""
    if isinstance(error, Raw):
        code, said = jsonrpc.error_of(error)
        return RequestFailure(str(code), code, said)
    if method == "tools/call" and isinstance(result, Raw) and translate.is_tool_error(result):
        return RequestFailure(conventions.TOOL_ERROR)
    return _WELL


def _read_target(method: str, params: Mapping[str, Raw], labels: Attributes, more: Attributes) -> str | None:
    """Add what a request is about to the attributes of metrics and of its span; return the tool that it calls."""
    key = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}.get(method)
    if key is None:
        return None
    try:
        written = jsonrpc.text(params.get(key)) or ""
    except ValueError:
        written = ""
    if method != "tools/call":
        # A client may name any prompt and any resource, so neither names a span. A URI may hold a key in its query.
        plain = written if key == "name" else re.split("[?#]", written, maxsplit=1)[0]
        more[conventions.PROMPT if key == "name" else conventions.RESOURCE] = shorten(plain)
        return None
    more[conventions.TOOL] = shorten(written)
    labels[conventions.OPERATION] = conventions.EXECUTE_TOOL
    return written


def _protocol(version: str) -> Attributes:
    known = (*versions.MODERN_VERSIONS, *versions.LEGACY_VERSIONS)
    return {conventions.PROTOCOL: version} if version in known else {}


def _transport(transport: str, folder: str = "") -> Attributes:
    if transport == "http":
        return {conventions.TRANSPORT: "tcp", conventions.HTTP: "http"}
    return {conventions.TRANSPORT: "unix" if folder else "pipe"}
