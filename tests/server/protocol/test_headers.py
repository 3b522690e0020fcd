"""The header codec against the MCP Python SDK's own, and the specification's tables."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.shared import inbound

from foretool.server.protocol import headers, jsonrpc, versions
from foretool.server.protocol.headers import Headers
from foretool.server.protocol.jsonrpc import Message, RpcError

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(alphabet="=?base64 ~\t\n\x00é"),
    st.binary().map(lambda data: f"=?base64?{base64.b64encode(data).decode()}?="),
    st.text(alphabet="ABab+/=01").map(lambda text: f"=?base64?{text}?="),
)
NAMES = st.sampled_from(["a", "b", "A"])
TOKENS = st.one_of(st.sampled_from(["Region", "region", "X", "bad name", "", "ü"]), st.integers(), st.none())
TYPES = st.sampled_from(["string", "integer", "boolean", "number", "object", ["string"], None])
LEAVES = st.fixed_dictionaries(
    {}, optional={"x-mcp-header": TOKENS, "type": TYPES, "default": st.just({"x-mcp-header": 1})}
)


def _deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.dictionaries(NAMES, inner, max_size=3)
    optional = {
        "properties": members,
        "x-mcp-header": TOKENS,
        "type": TYPES,
        "items": inner,
        "anyOf": st.lists(inner, max_size=2),
        "$defs": members,
        "not": inner,
        "enum": st.lists(inner, max_size=1),
    }
    return st.fixed_dictionaries({}, optional=optional)


SCHEMAS = st.recursive(LEAVES, _deeper, max_leaves=6)
GOOD_LEAVES = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "boolean"])}, optional={"x-mcp-header": st.sampled_from("pqrs")}
)
GOOD = st.recursive(
    GOOD_LEAVES,
    lambda inner: st.fixed_dictionaries({"properties": st.dictionaries(NAMES, inner, max_size=3)}),
    max_leaves=5,
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 3).map(float),
    st.floats(),
    TEXTS,
    st.just([1]),
)
ARGUMENTS = st.dictionaries(
    NAMES, st.recursive(SCALARS, lambda inner: st.dictionaries(NAMES, inner, max_size=3)), max_size=3
)


def lines(*pairs: tuple[str, str]) -> Headers:
    return Headers((name.encode(), value.encode("latin-1")) for name, value in pairs)


@given(TEXTS)
def test_a_value_is_written_and_read_as_the_sdk_does(text: str) -> None:
    written = headers.encode(text)
    assert written == inbound.encode_header_value(text)
    assert headers.decode(written) == text
    assert headers.decode(text) == inbound.decode_header_value(text)


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_the_examples_of_the_specification(value: str, header: str) -> None:
    assert headers.encode(value) == header


@pytest.mark.slow
@settings(max_examples=120)
@given(SCHEMAS)
def test_an_invalid_annotation_is_found_where_the_sdk_finds_one(schema: Any) -> None:
    assert (headers.schema_problem(schema) is None) == (inbound.find_invalid_x_mcp_header(schema) is None)


def test_a_problem_names_the_property() -> None:
    schema = {"properties": {"n": {"type": "number", "x-mcp-header": "N"}}}
    assert headers.schema_problem(schema) == "property 'n': x-mcp-header needs the type string, integer or boolean"


def test_a_schema_of_any_depth_is_walked() -> None:
    schema: dict[str, Any] = {"x-mcp-header": "deep", "type": "string"}
    for _ in range(5000):
        schema = {"properties": {"a": schema}}
    assert headers.schema_problem(schema) is None


@pytest.mark.slow
@settings(max_examples=120)
@given(GOOD, ARGUMENTS)
def test_the_headers_of_a_call_are_the_sdks_and_pass_both_checks(schema: Any, arguments: dict[str, Any]) -> None:
    ours = headers.param_headers(schema, arguments)
    assert ours == inbound.mcp_param_headers(inbound.x_mcp_header_map(schema), arguments)
    if headers.schema_problem(schema) is None:
        headers.check_params(schema, arguments, lines(*ours.items()))
        assert inbound.validate_mcp_param_headers(schema, arguments, ours) is None


@pytest.mark.slow
@settings(max_examples=120)
@given(
    GOOD, ARGUMENTS, st.dictionaries(st.sampled_from(["Mcp-Param-p", "mcp-param-Q", "mcp-param-r"]), SCALARS.map(repr))
)
def test_headers_are_refused_exactly_when_the_sdk_refuses_them(
    schema: Any, arguments: dict[str, Any], sent: dict[str, str]
) -> None:
    sent = {name: value for name, value in sent.items() if value.isascii()}
    theirs = inbound.validate_mcp_param_headers(schema, arguments, sent)
    assert _refused(schema, arguments, sent) == (theirs is not None)


def _refused(schema: Any, arguments: Any, sent: dict[str, str]) -> bool:
    try:
        headers.check_params(schema, arguments, lines(*sent.items()))
    except RpcError as error:
        assert error.code == jsonrpc.HEADER_MISMATCH
        return True
    return False


@pytest.mark.parametrize(
    ("header", "value", "same"), [("42.0", 42, True), ("42", 42.0, True), ("42.5", 42, False), ("4e1", 40, False)]
)
def test_integers_are_compared_as_numbers(header: str, value: float, same: bool) -> None:
    schema = {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}
    assert _refused(schema, {"n": value}, {"Mcp-Param-N": header}) is not same


VERSIONS = st.sampled_from(["2026-07-28", "2025-11-25", "2099-01-01", 7, None])
METHODS = st.sampled_from(["tools/call", "resources/read", "tools/list"])


@pytest.mark.slow
@settings(max_examples=200)
@given(
    METHODS,
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.sampled_from(["x", "é", 3, None]),
            "uri": st.just("file:///a"),
            "_meta": st.one_of(
                st.none(),
                st.fixed_dictionaries(
                    {}, optional={versions.META_VERSION: VERSIONS, versions.META_CAPABILITIES: st.just({})}
                ),
            ),
        },
    ),
    st.fixed_dictionaries(
        {},
        optional={
            headers.VERSION: st.sampled_from(["2026-07-28", "2099-01-01", ""]),
            headers.METHOD: METHODS,
            headers.NAME: st.sampled_from(["x", headers.encode("é"), "file:///a", "=?base64?!?="]),
        },
    ),
)
def test_a_request_passes_and_fails_the_ladder_as_in_the_sdk(
    method: str, params: dict[str, Any], sent: dict[str, str]
) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    verdict = inbound.classify_inbound_request(body, headers=sent)
    expected = verdict.code if isinstance(verdict, inbound.InboundLadderRejection) else None
    assert _verdict(Message(id=1, method=method, params=jsonrpc.raw(params)), lines(*sent.items())) == expected


def _verdict(message: Message, sent: Headers) -> int | None:
    try:
        headers.check_request(message, sent)
    except RpcError as error:
        return error.code
    return None


def test_a_header_that_cannot_be_read_equals_no_name_not_even_one_that_is_no_string() -> None:
    meta = {versions.META_VERSION: "2026-07-28", versions.META_CAPABILITIES: {}}
    message = Message(id=1, method="tools/call", params=jsonrpc.raw({"name": 3, "_meta": meta}))
    sent = ((headers.VERSION, "2026-07-28"), (headers.METHOD, "tools/call"))
    assert _verdict(message, lines(*sent, (headers.NAME, "=?base64?!?="))) == jsonrpc.HEADER_MISMATCH


def test_a_header_sent_twice_is_refused_before_anything_else() -> None:
    twice = lines(("Mcp-Method", "tools/list"), ("mcp-method", "tools/list"))
    assert _verdict(Message(id=1, method="tools/list"), twice) == jsonrpc.HEADER_MISMATCH
    schema = {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}
    with pytest.raises(RpcError, match="Mcp-Param-N header appears more than once"):
        headers.check_params(schema, {"n": 1}, lines(("Mcp-Param-N", "1"), ("mcp-param-n", "1")))


def test_the_headers_of_a_request_name_what_it_is_about() -> None:
    made = headers.request_headers("resources/read", {"uri": jsonrpc.raw("file:///ä")})
    assert made == {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "resources/read",
        "mcp-name": headers.encode("file:///ä"),
    }
    assert headers.NAME not in headers.request_headers("tools/list", {})


def test_a_number_too_long_to_write_has_no_header() -> None:
    schema = {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}
    assert headers.param_headers(schema, {"n": 10**5000}) == {}
    assert not _refused(schema, {"n": 10**5000}, {})
    assert _refused(schema, {"n": 10**5000}, {"Mcp-Param-N": "1" * 5001})


def test_the_headers_of_a_call_come_from_the_definition_of_the_tool() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    definition = jsonrpc.encode({"name": "sql", "inputSchema": schema})
    assert headers.call_headers(definition, jsonrpc.raw({"region": "eu"})) == {"Mcp-Param-Region": "eu"}
    assert headers.call_headers(definition, None) is None
    assert headers.call_headers(b'{"name":"x","inputSchema":{}}', jsonrpc.raw({"region": "eu"})) is None
    assert headers.schema_problem(headers.annotated_schema(definition)) is None
    assert headers.schema_problem(headers.annotated_schema(definition.replace(b"Region", b"Re gion"))) is not None


def test_blanks_around_a_header_value_are_no_part_of_it() -> None:
    assert lines(("Mcp-Name", "  a b\t")).get("mcp-name") == "a b"
