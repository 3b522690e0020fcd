"""Bytes to messages and back; what only the slow decoder reads keeps its spelling too."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import PART, UNSET, BadMessage, Raw


def written(parts: dict[str, Raw]) -> dict[str, bytes]:
    return {key: bytes(part) for key, part in parts.items()}


def test_a_request_keeps_its_params_as_written() -> None:
    message = jsonrpc.decode(b'{"jsonrpc":"2.0","id":"a","method":"m","params":{"x": 1.0, "y":1e400}}')
    assert (message.id, message.method) == ("a", "m")
    assert message.params == Raw(b'{"x": 1.0, "y":1e400}')
    assert not message.is_reply


@pytest.mark.parametrize(
    ("line", "has_method", "has_id", "is_reply"),
    [
        (b'{"jsonrpc":"2.0","method":"m"}', True, False, False),
        (b'{"jsonrpc":"2.0","id":1,"method":"m"}', True, True, False),
        (b'{"jsonrpc":"2.0","id":1,"result":null}', False, True, True),
        (b'{"jsonrpc":"2.0","id":null,"error":{}}', False, True, True),
    ],
)
def test_a_message_is_of_one_kind(line: bytes, has_method: bool, has_id: bool, is_reply: bool) -> None:
    message = jsonrpc.decode(line)
    found = (message.method is not UNSET, message.id is not UNSET, message.is_reply)
    assert found == (has_method, has_id, is_reply)


def test_an_error_tells_the_id_of_the_request_where_it_can() -> None:
    with pytest.raises(BadMessage) as bad:
        jsonrpc.decode(b'{"jsonrpc":"2.0","id":7,"method":5}')
    assert (bad.value.code, bad.value.id) == (jsonrpc.INVALID_REQUEST, 7)


@pytest.mark.parametrize("odd", [b'"\\ud800"', b"NaN", b'"\xff"', b'"cut off'])
def test_what_the_fast_decoder_refuses_is_read_or_refused_as_fast(odd: bytes) -> None:
    data = b'{"jsonrpc":"2.0","id":7,"result":[' + b'{"a":[1]},' * 400_000 + odd + b"]}"
    began = time.process_time()
    with suppress(BadMessage):
        assert len(jsonrpc.decode(data).result) > 4_000_000
    assert time.process_time() - began < 0.7


_ESCAPES = ["\\ud800", "\\uDC00", "\\\\", "\\\\ud8", "\\ud83d\\ude00", "\\u2428", '\\"', "\u2427", "\u0378", "a"]


@given(st.lists(st.tuples(*[st.lists(st.sampled_from(_ESCAPES), max_size=5).map("".join)] * 2), max_size=3))
def test_members_with_escaped_surrogates_keep_their_spelling(members: list[tuple[str, str]]) -> None:
    source = ",".join(f'"{key}":"{value}"' for key, value in members)
    found = jsonrpc.fields(f"{{{source}}}".encode())
    assert written(found) == {json.loads(f'"{key}"'): f'"{value}"'.encode() for key, value in members}
    listed = jsonrpc.items(f"[{source.replace(':', ',')}]".encode())
    assert [bytes(each).decode() for each in listed] == [f'"{each}"' for pair in members for each in pair]


def test_a_lone_surrogate_goes_out_as_the_escape_it_came_as() -> None:
    result = Raw(b'{"a": 1.0}')
    assert jsonrpc.result("\ud800", result) == b'{"jsonrpc":"2.0","id":"\\ud800","result":{"a": 1.0}}'
    assert jsonrpc.raw({"m": ["\udc00", "é", 1, None, result]}) == Raw(b'{"m":["\\udc00","\\u00e9",1,null,{"a": 1.0}]}')
    error = jsonrpc.failure("\ud800", jsonrpc.error_object(-32601, "\ud800"))
    assert jsonrpc.decode_value(error) == {
        "jsonrpc": "2.0",
        "id": "\ud800",
        "error": {"code": -32601, "message": "\ud800"},
    }


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.slow
@given(value=st.dictionaries(st.text(), values, max_size=5), indent=st.none() | st.just(2))
def test_cutting_an_object_gives_what_decoding_it_gives(value: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(value, indent=indent).replace("Infinity", "1e400").encode()
    assert {key: json.loads(bytes(part)) for key, part in jsonrpc.fields(text).items()} == json.loads(text)


@pytest.mark.parametrize("read", [jsonrpc.decode_value, jsonrpc.fields, jsonrpc.items])
def test_what_is_nested_too_deeply_is_a_value_error(read: Any) -> None:
    with pytest.raises(ValueError):
        read(b"[" * 100_000)


@pytest.mark.parametrize(
    ("line", "ident"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%b}', 7),
        (b'{"method":"tools/call","params":%b,"jsonrpc":"2.0","id":"x"}', "x"),
        (b'{"jsonrpc":"2.0","method":"tools/call","params":%b}', None),
        (b'{"jsonrpc":"2.0","id":"foretool-1","result":%b}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping","params":%b}', None),
    ],
)
def test_a_request_that_is_nested_too_deeply_is_refused_under_its_id(line: bytes, ident: object) -> None:
    with pytest.raises(BadMessage, match="nested too deeply") as refused:
        jsonrpc.decode(bytearray(line % (b"[" * 100_000 + b"]" * 100_000)))
    assert (refused.value.code, refused.value.id) == (jsonrpc.PARSE_ERROR, ident)


def test_merging_leaves_the_other_members_alone() -> None:
    merged = jsonrpc.merge_members(Raw(b'{"a":1.0,"b":1e400}'), {"b": 2, "c": Raw(b"3.0")})
    assert bytes(merged) == b'{"a":1.0,"b":2,"c":3.0}'
    assert bytes(jsonrpc.merge_members(UNSET, {"a": 1})) == b'{"a":1}'


def test_a_message_on_several_lines_is_sent_on_one() -> None:
    assert jsonrpc.without_line_breaks(b'{\r\n"a":\n1}') == b'{  "a": 1}'


@pytest.mark.parametrize("error", [b"5", b"{}", b'{"code":"x","message":1}', b"null"])
def test_a_malformed_error_has_some_code_and_some_words(error: bytes) -> None:
    code, words = jsonrpc.error_of(Raw(error))
    assert isinstance(code, int)
    assert words


def test_an_error_is_told_whatever_its_message_and_its_data_are() -> None:
    assert jsonrpc.error_of(Raw(b'{"data":{"code":2},"code":-5,"message":"a\\ud800"}')) == (-5, "a\ud800")
    assert jsonrpc.error_of(Raw(b'{"code":1,"message":["a"]}')) == (1, '["a"]')


@pytest.mark.parametrize("before", [0, 5, PART - 3, PART, 2 * PART + 1])
def test_a_word_is_found_wherever_it_stands_in_a_large_value(before: int) -> None:
    assert jsonrpc.holds(Raw(b"x" * before + b"needle" + b"x" * PART), b"needle")
    assert not jsonrpc.holds(Raw(b"x" * before + b"needl" + b"x" * PART), b"needle")


@pytest.mark.parametrize("ident", [5, 'a"b', "\ud800"])
def test_a_large_result_is_written_like_a_small_one(ident: int | str) -> None:
    value = Raw(b'["' + b"y" * PART + b'"]')
    written = jsonrpc.result(ident, value)
    assert written == jsonrpc.encode(jsonrpc.Message(id=ident, result=value))
    assert json.loads(written)["result"] == json.loads(bytes(value))


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80"])
def test_bytes_that_are_not_utf_8_are_found_in_a_large_message_too(bad: bytes) -> None:
    letter = "é".encode() * PART
    jsonrpc.decode(b'{"jsonrpc":"2.0","method":"x","params":["a%b"]}' % letter)
    with pytest.raises(BadMessage, match="not JSON"):
        jsonrpc.decode(b'{"jsonrpc":"2.0","method":"x","params":["%b%b"]}' % (letter, bad))
