"""Trace context in `_meta` and in headers, also from clients that mean harm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import BOTH, FakeUpstream, proxy_over
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import get_current_span
from requirements import requirement
from telemetry_fakes import watched

from foretool.fleet.telemetry import propagation
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.headers import Headers

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

HOSTILE: tuple[Any, ...] = (
    "",
    "00",
    "x" * 10**6,
    PARENT + "-" + "0" * 10**5,
    "00-" + "0" * 32 + "-" + "0" * 16 + "-01",
    "ff" + PARENT[2:],
    PARENT.upper().replace("0", "G"),
    PARENT + "\r\nx-evil: 1",
    "\ud800",
    17,
    None,
    ["a"],
    {"a": 1},
    True,
)


def raw(**meta: Any) -> dict[str, Any]:
    return {key: jsonrpc.raw(value) for key, value in meta.items()}


def context_of(**meta: Any) -> Any:
    return get_current_span(propagation.read_context(raw(**meta))).get_span_context()


def test_a_parent_is_read() -> None:
    read = context_of(traceparent=PARENT, tracestate="a=1")
    assert (f"{read.trace_id:032x}", read.is_remote, read.trace_state.to_header()) == (PARENT[3:35], True, "a=1")


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:20])
def test_what_is_no_parent_begins_a_trace(value: Any) -> None:
    assert not context_of(traceparent=value).is_valid


@pytest.mark.parametrize(
    "state",
    ["=" * 400, "a" * 10**6, ",".join(f"k{n}=v" for n in range(10**4)), "a=1\r\nb: 2", 4, None, "\ud800=1"],
    ids=lambda value: repr(value)[:20],
)
def test_a_bad_state_does_not_cost_the_parent(state: Any, caplog: pytest.LogCaptureFixture) -> None:
    read = context_of(traceparent=PARENT, tracestate=state)
    assert caplog.text.isascii() and "b: 2" not in caplog.text
    assert read.is_valid
    assert len(read.trace_state.to_header()) <= 512


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reading(data: bytes) -> None:
    propagation.read_context({"traceparent": jsonrpc.Raw(data), "tracestate": jsonrpc.Raw(data)})


@pytest.mark.anyio
@requirement("telemetry:off")
@pytest.mark.parametrize("eras", [("legacy",), BOTH], ids=str)
@pytest.mark.parametrize("value", [PARENT, "nonsense", {"a": [1]}], ids=lambda value: str(value)[:8])
async def test_off_a_context_passes_unchanged(eras: Any, value: Any) -> None:
    calc = FakeUpstream("calc", ["add"], eras=eras)
    meta = {"traceparent": value, "tracestate": "a=1", "baggage": "user=ann"}
    async with proxy_over(calc) as stage:
        await stage.client.initialize()
        await stage.client.call_tool("calc__add", {}, meta=meta)
    reached = calc.requests[-1].meta
    assert {key: reached[key] for key in meta} == meta


@pytest.mark.anyio
@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:20])
async def test_on_hostile_contexts_reach_no_upstream(value: Any) -> None:
    calc = FakeUpstream("calc", ["add"])
    async with watched(calc) as at:
        await at.stage.client.initialize()
        meta = {"traceparent": value, "tracestate": value}
        await at.stage.client.call_tool("calc__add", {}, meta=meta)
        ours = at.span("tools/call add")
    reached = calc.requests[-1].meta
    # The flags say that it is sampled, and in newer libraries that its id is random.
    assert reached["traceparent"].startswith(f"00-{ours.context.trace_id:032x}-{ours.context.span_id:016x}-0")
    assert "tracestate" not in reached


def adopted(meta: Any, *lines: tuple[bytes, bytes]) -> Any:
    params = {"name": "x"} | ({"_meta": meta} if meta is not None else {})
    message = jsonrpc.decode(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode())
    return jsonrpc.decode_value(propagation.adopt_headers(message, Headers(lines)).params)


def test_headers_count_where_meta_says_nothing() -> None:
    lines = ((b"traceparent", PARENT.encode()), (b"baggage", b"a=1"), (b"tracestate", b"x=" + b"y" * 10**5))
    assert adopted(None, *lines) == {"name": "x", "_meta": {"traceparent": PARENT, "baggage": "a=1"}}
    assert adopted({"progressToken": 1}, *lines)["_meta"]["traceparent"] == PARENT
    assert adopted({"traceparent": "mine"}, *lines)["_meta"] == {"traceparent": "mine"}
    assert adopted(["no object"], *lines)["_meta"] == ["no object"]
    assert adopted(None) == {"name": "x"}
