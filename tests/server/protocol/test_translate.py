"""What of a message belongs to one hop, and what the other era needs beside it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from requirements import requirement

from foretool.server.protocol import translate, versions
from foretool.server.protocol.jsonrpc import Raw, raw


def members(value: Any) -> dict[str, Any]:
    return json.loads(bytes(value))


def test_a_modern_result_loses_what_legacy_clients_do_not_know() -> None:
    value = {"content": [], "resultType": "complete", "ttlMs": 1, "cacheScope": "private"}
    value["_meta"] = {versions.META_SERVER_INFO: {"name": "up"}, "kept": 1}
    got = translate.translate_result(raw(value), "tools/call", "legacy", "modern")
    assert members(got) == {"content": [], "_meta": {"kept": 1}}


def test_a_legacy_result_gets_what_modern_clients_want() -> None:
    got = members(translate.translate_result(raw({"contents": []}), "resources/read", "modern", "legacy"))
    assert got["resultType"] == "complete"
    assert (got["ttlMs"], got["cacheScope"]) == (0, "private")
    assert got["_meta"][versions.META_SERVER_INFO]["name"] == "foretool"


def test_a_resource_that_is_missing_has_the_code_of_the_clients_era() -> None:
    missing = raw({"code": -32002, "message": "no", "data": {"uri": "x"}})
    assert members(translate.error(missing, "resources/read", "modern")) == {
        "code": -32602,
        "message": "no",
        "data": {"uri": "x"},
    }
    assert translate.error(missing, "resources/read", "legacy") == missing


@requirement("era:url-elicitation")
def test_a_modern_client_reads_where_to_sign_in_instead_of_a_code_that_it_does_not_know() -> None:
    data = {"elicitations": [{"mode": "url", "url": "https://example.org/in", "message": "Sign in"}, 7]}
    asked = raw({"code": -32042, "message": "Sign in first", "data": data})
    assert members(translate.error(asked, "tools/call", "modern")) == {
        "code": -32603, "message": "Sign in first: open https://example.org/in, then call again", "data": data,
    }  # fmt: skip
    assert translate.error(asked, "tools/call", "legacy") == asked


@pytest.mark.parametrize(
    ("value", "is_error"),
    [
        (b'{"isError":true}', True),
        (b'{"isError": true ,"content":[]}', True),
        (b'{"isError":false}', False),
        (b'{"content":"\\"isError\\":true"}', False),
        (b'{"content":{"isError":true}}', False),
        (b'["isError"]', False),
        (b'"isError"', False),
    ],
)
def test_only_a_results_own_member_makes_it_an_error(value: bytes, is_error: bool) -> None:
    assert translate.is_tool_error(Raw(value)) is is_error


def test_the_shape_of_arguments_holds_names_and_kinds_alone() -> None:
    arguments = Raw(b'{"a":"secret","b":-1.5,"c":[1],"d":{},"e":true,"f":false,"g":null}')
    kinds = {"a": "string", "b": "number", "c": "array", "d": "object", "e": "boolean", "f": "boolean", "g": "null"}
    assert members(translate.argument_shape(arguments).encode()) == kinds
    assert translate.argument_shape(None) == "{}"
    many = Raw(b"{%b}" % b",".join(b'"%s%d": 1' % (b"k" * 500, number) for number in range(1000)))
    assert len(translate.argument_shape(many)) < 60_000
    assert translate.argument_shape(Raw(b'"text"')) == "{}"
    more = Raw(b"{%b}" % b",".join(b'"%d" \t: 1' % number for number in range(100_001)))
    assert translate.argument_shape(more) == "{}", "reading a million names takes a second"
