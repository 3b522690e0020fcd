"""Trace context of a request: read from its `_meta` (SEP-414), and written into what goes on to a server.

Baggage is passed on and never read. Over HTTP the headers of the same names count where `_meta` has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import Span, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.headers import Headers
from foretool.server.protocol.jsonrpc import Message, Raw
from foretool.server.transports.client.http_request import HttpRequest

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
_BAGGAGE: Final = "baggage"
_KEYS: Final = (PARENT, STATE, _BAGGAGE)
_LONGEST: Final = {PARENT: 128, STATE: 512, _BAGGAGE: 8192}
"""Characters that are read; the W3C asks for so many of the last two. A longer text is not there, nor is one with
anything but printable ASCII."""

_w3c: Final = TraceContextTextMapPropagator()


def read_context(meta: Mapping[str, Raw]) -> Context:
    """Return the context of whoever sent a request; an empty one if `_meta` names none that is valid."""
    if PARENT not in meta:
        return Context()
    return _w3c.extract({key: found for key in (PARENT, STATE) if (found := _text(meta, key))}, Context())


def write_context(span: Span, context: Context) -> dict[str, Raw]:
    """Return what `_meta` says of a span to the server that the request goes to. `context`: where the span began."""
    if not span.get_span_context().is_valid:
        span = get_current_span(context)
    carrier: dict[str, str] = {}
    state = span.get_span_context()
    if state.is_valid:
        carrier[PARENT] = f"00-{state.trace_id:032x}-{state.span_id:016x}-{state.trace_flags:02x}"
        if state.trace_state:
            carrier[STATE] = state.trace_state.to_header()
    return {key: jsonrpc.raw(text) for key, text in carrier.items()}


def _text(meta: Mapping[str, Raw], key: str) -> str:
    value = meta.get(key)
    if value is None or memoryview(value).nbytes > _LONGEST[key] + 2:
        return ""
    try:
        text = jsonrpc.text(value) or ""
    except ValueError:
        return ""
    # Otherwise OpenTelemetry's parser would log it as it is, half characters and line ends with it.
    return text if text.isascii() and text.isprintable() else ""


def adopt_headers(message: Message, headers: Headers) -> Message:
    """Put the context of an HTTP request into `_meta` of its message, unless that has one of its own."""
    if not headers.get(PARENT) or message.method is jsonrpc.UNSET:
        return message
    try:
        params = jsonrpc.fields(message.params)
        meta = jsonrpc.fields(params.get("_meta", jsonrpc.UNSET))
    except ValueError:
        return message  # whoever reads it says what is wrong
    if PARENT not in meta:
        found = {key: text for key in _KEYS if (text := headers.get(key)) and len(text) <= _LONGEST[key]}
        message.params = jsonrpc.raw({**params, "_meta": {**found, **meta}})
    return message


class TracedRequest(HttpRequest):
    """An HTTP request whose headers may name a trace."""

    async def message(self) -> Message:
        return adopt_headers(await super().message(), self.headers)
