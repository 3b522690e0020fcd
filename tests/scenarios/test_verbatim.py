"""What an upstream says reaches the client value for value, and the other way round."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import BOTH, LEGACY, MODERN, FakeUpstream, proxy_over
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from requirements import requirement

from foretool.server.protocol import jsonrpc
from foretool.storage.records import Era

pytestmark = pytest.mark.anyio

ODD: bytes = (
    b'{"content":[],"big":123456789012345678901234567890,"small":-9223372036854775809,"float":1.0,"exp":1E+2,'
    b'"zero":-0,"tiny":1e-999,"huge":1e400,"name":"a","Name":"b","a":{"x":1,"x":2},"":null,"uni":"\\u00e9\\ud83d\\ude00",'
    b'"lone":"\\ud800","slash":"\\/","nul":"\\u0000","raw":"\xc3\xa9","deep":[[[[[[[[1]]]]]]]],"isError":false}'
)


async def fetched(result: bytes, eras: tuple[Era, ...] = LEGACY, modern: bool = False) -> bytes:
    """The result as the client gets it."""
    upstream = FakeUpstream("calc", ["odd"], eras, results={"odd": result})
    async with proxy_over(upstream) as stage:
        client = stage.client.modern() if modern else stage.client
        call = client.post("tools/call", {"name": "calc__odd", "arguments": {}})
        await client.reply(call)
        found = jsonrpc.decode(client.raw(call)).result
    assert isinstance(found, jsonrpc.Raw)
    return bytes(found)


@requirement("call:verbatim")
async def test_a_legacy_result_arrives_byte_for_byte() -> None:
    assert await fetched(ODD) == ODD


@requirement("call:verbatim")
@pytest.mark.parametrize(("eras", "modern"), [(MODERN, True), (LEGACY, True), (MODERN, False), (BOTH, True)])
async def test_between_the_eras_every_value_keeps_its_spelling(eras: tuple[Era, ...], modern: bool) -> None:
    got = jsonrpc.fields(await fetched(ODD.replace(b'"a":{"x":1,"x":2},', b""), eras, modern))
    for key, value in jsonrpc.fields(ODD).items():
        if key not in ("a", "lone"):
            assert bytes(got[key]).replace(b" ", b"") == bytes(value), key
    assert json.loads(bytes(got["lone"])) == "\ud800"


@requirement("call:verbatim")
async def test_a_lone_surrogate_does_not_change_the_spelling_of_what_stands_beside_it() -> None:
    got = jsonrpc.fields(await fetched(b'{"content":[],"lone":"\\ud800","n":1.0,"big":1e400}', LEGACY, True))
    assert bytes(got["n"]) == b"1.0"
    assert bytes(got["big"]) == b"1e400"


@requirement("call:arguments-verbatim")
@pytest.mark.parametrize("via", ["name", "bridge"])
async def test_arguments_reach_the_upstream_as_they_were_written(via: str) -> None:
    upstream = FakeUpstream("calc", ["odd"])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        call = b'{"name":"calc__odd","arguments":%s}' % ODD
        if via == "bridge":
            call = b'{"name":"call_tool_write","arguments":%s}' % call
        stage.client.feed(b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":%s}\n' % call)
        asked = await upstream.called("odd")
        await stage.client.until(lambda: "x" in stage.client._raw)
    assert isinstance(asked.message.params, jsonrpc.Raw)
    assert bytes(jsonrpc.fields(asked.message.params)["arguments"]) == ODD


@requirement("call:error-verbatim")
async def test_an_error_of_the_upstream_arrives_with_its_code_and_data() -> None:
    upstream = FakeUpstream("calc", ["odd"])
    upstream.scripts["odd"] = lambda asked: asked.fail(-32050, "no more", {"left": 1.0})
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        reply = await stage.client.reply(stage.client.post("tools/call", {"name": "calc__odd"}))
        (call,) = stage.calls()
    assert reply["error"] == {"code": -32050, "message": "no more", "data": {"left": 1.0}}
    assert call.outcome == "error"


@requirement("call:tool-error")
async def test_a_result_that_is_an_error_is_passed_on_and_recorded_as_one() -> None:
    failed = {"content": [], "isError": True}
    async with proxy_over(FakeUpstream("calc", ["odd"], results={"odd": failed})) as stage:
        await stage.client.initialize()
        assert await stage.client.call_tool("calc__odd", {}) == failed
        assert [call.outcome for call in stage.calls()] == ["tool_error"]


@requirement("wire:ids")
@pytest.mark.parametrize("id", [0, -1, 2**53 + 1, 2**63 - 1, 2**80, "", "1", "é\n", "x" * 500])
async def test_a_request_id_of_any_kind_comes_back_as_it_was(id: Any) -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        await stage.client.initialize()
        for method, params in (
            ("ping", {}),
            ("tools/call", {"name": "calc__add"}),
            ("tools/list", {}),
            ("no/such", {}),
        ):
            await stage.client.reply(stage.client.post(method, params, id=id))
            message = stage.client.messages[-1]
            assert (message["id"], type(message["id"])) == (id, type(id))


@requirement("wire:ids")
async def test_equal_looking_ids_of_different_type_are_different_requests() -> None:
    upstream = FakeUpstream("calc", ["add"])
    upstream.hold("add")
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        for id in (7, "7"):
            stage.client.post("tools/call", {"name": "calc__add", "arguments": {"id": id}}, id=id)
        first, second = await upstream.called("add"), await upstream.called("add", 2)
        second.reply({"content": [], "for": "text"})
        first.reply({"content": [], "for": "number"})
        assert (await stage.client.result(7))["for"] == "number"
        assert (await stage.client.result("7"))["for"] == "text"


@requirement("wire:ids")
async def test_an_id_in_use_is_refused_and_the_first_request_goes_on() -> None:
    upstream = FakeUpstream("calc", ["add"])
    upstream.hold("add")
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize()
        client.post("tools/call", {"name": "calc__add"}, id="same")
        asked = await upstream.called("add")
        client.write({"jsonrpc": "2.0", "id": "same", "method": "ping"})
        await client.until(lambda: client.messages[-1].get("id") == "same")
        assert client.messages[-1]["error"]["code"] == jsonrpc.INVALID_REQUEST
        asked.reply({"content": []})
        await client.until(lambda: client.messages[-1].get("result") == {"content": []})


GARBAGE: list[tuple[bytes, int]] = [
    (b"hello", jsonrpc.PARSE_ERROR),
    (b'{"jsonrpc":"2.0","id":1', jsonrpc.PARSE_ERROR),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}', jsonrpc.PARSE_ERROR),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xff"}}', jsonrpc.PARSE_ERROR),
    (b"[" * 100_000, jsonrpc.PARSE_ERROR),
    (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        jsonrpc.PARSE_ERROR,
    ),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', jsonrpc.INVALID_REQUEST),
    (b'{"id":1,"method":"ping"}', jsonrpc.INVALID_REQUEST),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', jsonrpc.INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', jsonrpc.INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', jsonrpc.INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', jsonrpc.INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":1,"method":5}', jsonrpc.INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":1}', jsonrpc.INVALID_REQUEST),
    (b"7", jsonrpc.INVALID_REQUEST),
    (b"null", jsonrpc.INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[1]}', jsonrpc.INVALID_PARAMS),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}', jsonrpc.INVALID_PARAMS),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', jsonrpc.INVALID_PARAMS),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":5}}', jsonrpc.INVALID_PARAMS),
    (b'{"jsonrpc":"2.0","id":1,"method":"initialize"}', jsonrpc.INVALID_PARAMS),
    (b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}', jsonrpc.INVALID_PARAMS),
    (b'{"jsonrpc":"2.0","id":1,"method":"no/such"}', jsonrpc.METHOD_NOT_FOUND),
    (b'{"jsonrpc":"2.0","id":1,"method":"__class__"}', jsonrpc.METHOD_NOT_FOUND),
]


@requirement("wire:bad-messages")
@pytest.mark.parametrize(("line", "code"), GARBAGE, ids=range(len(GARBAGE)))
async def test_a_bad_message_is_answered_with_its_code_and_the_conversation_goes_on(line: bytes, code: int) -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        client = stage.client
        client.feed(line + b"\n")
        await client.until(lambda: bool(client.messages))
        assert client.messages[0]["error"]["code"] == code
        await client.initialize()
        await client.call_tool("calc__add", {})


@requirement("wire:bad-messages")
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
        b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":7}',
        b'{"jsonrpc":"2.0","method":"notifications/unheard-of","params":"x"}',
        b'{"jsonrpc":"2.0","id":"foretool-99","result":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":null,"error":5}',
    ],
)
async def test_a_strange_notification_or_answer_is_passed_over(line: bytes) -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        client = stage.client
        await client.initialize()
        seen = len(client.messages)
        client.feed(line + b"\n")
        await client.ask("ping")
        assert len(client.messages) == seen + 1


@requirement("wire:deep-arguments")
@pytest.mark.parametrize("depth", [50, 200, 400, 600, 800, 900, 950, 970, 990, 2000])
@pytest.mark.parametrize("name", ["calc__add", "call_tool", "call_tool_write", "discover_tools"])
async def test_deeply_nested_arguments_get_some_answer_at_any_depth(depth: int, name: str) -> None:
    nested = b"[" * depth + b"]" * depth
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        client = stage.client
        await client.initialize()
        arguments = {"calc__add": b'{"a":%s}', "call_tool_write": b'{"name":"calc__add","arguments":{"a":%s}}'}.get(
            name, b'{"task":%s}'
        )
        params = b'{"name":"%s","arguments":%s}' % (name.encode(), arguments % nested)
        client.feed(b'{"jsonrpc":"2.0","id":77,"method":"tools/call","params":%s}\n' % params)
        await client.until(lambda: {"result", "error"} & set(client.messages[-1]) != set())
        await client.ask("ping")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@requirement("call:verbatim")
@given(result=st.dictionaries(st.text(), values, max_size=5))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_result_arrives_as_it_was_sent(result: dict[str, Any]) -> None:
    sent = json.dumps(result).encode()
    assert await fetched(sent) == sent
