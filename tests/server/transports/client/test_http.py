"""The HTTP server over real connections, before a proxy that only echoes; and measured against the SDK's server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from http_callers import (
    INITIALIZE,
    JSON_AND_EVENTS,
    META,
    Echo,
    EchoFront,
    bearer,
    http_rules,
    http_server,
    messages,
)
from http_fakes import PATIENCE_S, serving
from mcp.server import Server
from requirements import requirement

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Message
from foretool.server.transports.client.base import Channel
from foretool.server.transports.client.http import HttpServer
from foretool.server.transports.client.http_rules import BindError
from foretool.storage.records import Era

pytestmark = pytest.mark.anyio


@requirement("http:credentials")
async def test_a_token_is_asked_for_and_binds_a_session_to_it() -> None:
    async with http_server(tokens={"s3cret": ["*"], "other": ["*"]}) as caller:
        for header in ({}, bearer("wrong"), {"authorization": "Basic s3cret"}):
            refused = await caller.initialize(**header)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="foretool"')
        assert (await caller.initialize(**bearer("s3cret"))).status_code == 200
        assert caller.front.principal.startswith("bearer:")
        assert "s3cret" not in caller.front.principal
        headers = {**caller.session, **bearer("other")}
        assert (await caller.http.delete("/mcp", headers=headers)).status_code == 404
        assert (await caller.http.get("/health")).json() == {"status": "ok"}


async def test_a_supervisor_learns_whether_the_proxy_lives_and_is_ready_without_a_token() -> None:
    async with http_server(tokens={"s3cret": ["*"]}) as caller:
        states = [True]
        caller.server._is_ready = lambda: states[0]
        for path in ("/healthz", "/readyz"):
            response = await caller.http.get(path)
            assert (response.status_code, response.json()) == (200, {"status": "ok"})
            assert (await caller.http.get(path, headers={"host": "evil.example"})).status_code == 421
        states[0] = False
        response = await caller.http.get("/readyz")
        assert (response.status_code, response.json()) == (503, {"status": "not ready"})
        assert (await caller.http.get("/healthz")).status_code == 200


async def test_an_address_in_use_is_an_error_with_a_way_out() -> None:
    async with http_server() as caller:
        with pytest.raises(BindError, match="Address already in use; choose another"):
            await HttpServer(Echo(), http_rules(), caller.server.address).serve()


async def test_hosts_and_origins_may_be_allowed() -> None:
    options = {"allowed_hosts": ["mcp.example", "other.example:80"], "allowed_origins": ["https://app.example"]}
    async with http_server(**options) as caller:
        for headers, status in [
            ({"host": "mcp.example:99"}, 200),
            ({"host": "other.example:80"}, 200),
            ({"host": "other.example:81"}, 421),
            ({"host": "0.0.0.0"}, 421),
            ({"host": "[::1]:5"}, 200),
            ({"origin": "https://app.example"}, 200),
            ({"origin": "http://localhost:6274"}, 200),
            ({"origin": "null"}, 403),
            ({"origin": "http://127.0.0.1.evil.example"}, 403),
        ]:
            assert (await caller.initialize(**headers)).status_code == status, headers


@requirement("http:credentials")
async def test_a_session_belongs_to_its_profile_and_a_modern_front_to_its_credential() -> None:
    async with http_server(profiles=["", "work"], tokens={"s3cret": ["*"], "other": ["*"]}) as caller:
        assert (await caller.initialize("/mcp/work", **bearer("s3cret"))).status_code == 200
        headers = {**JSON_AND_EVENTS, **caller.session, **bearer("s3cret")}
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await caller.http.post("/mcp/work", json=note, headers=headers)).status_code == 202
        assert (await caller.http.post("/mcp", json=note, headers=headers)).status_code == 404
        for token in ("s3cret", "other"):
            async with caller.modern("tools/list", extra=bearer(token)) as response:
                assert response.status_code == 200
        modern = [front.principal for front in caller.fronts.fronts if front.era == "modern"]
        assert len(set(modern)) == 2


SLOW_LINES = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-type: application/json\r\n"


NO_HTTP: dict[str, tuple[bytes, bytes]] = {
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00" + bytes(100), b"400"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
    "an unknown version": (b"GET / HTTP/9.9\r\n\r\n", b"400"),
    "NUL bytes": (b"\0" * 1000, b"400"),
    "a line without end": (b"A" * 5000, b"400"),
    "two lengths": (SLOW_LINES + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}", b"400"),
    "a compressed transfer": (SLOW_LINES + b"transfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"501"),
    "a length twice": (SLOW_LINES + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}", b"400"),
    "a length in a list": (SLOW_LINES + b"content-length: 2, 2\r\n\r\n{}", b"400"),
    "a blank before a colon": (SLOW_LINES + b"content-length : 2\r\n\r\n{}", b"400"),
    "a folded line": (SLOW_LINES + b"x: y\r\n z\r\ncontent-length: 2\r\n\r\n{}", b"400"),
    "bare line feeds": (SLOW_LINES.replace(b"\r", b"") + b"content-length: 2\n\n{}", b"400"),
    "a negative length": (SLOW_LINES + b"content-length: -2\r\n\r\n{}", b"400"),
    "a length beyond counting": (SLOW_LINES + b"content-length: 99999999999999999999\r\n\r\n{}", b"400"),
    "chunks that are none": (SLOW_LINES + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n", b"400"),
    "two hosts": (SLOW_LINES + b"host: evil.example\r\ncontent-length: 2\r\n\r\n{}", b"400"),
    "no host": (SLOW_LINES.replace(b"host: localhost\r\n", b"") + b"content-length: 2\r\n\r\n{}", b"421"),
    "another server's address": (SLOW_LINES.replace(b"/mcp", b"http://evil.example/x") + b"\r\n", b"421"),
    "half a request": (SLOW_LINES + b"content-length: 20\r\n\r\n{}", b""),
}


@requirement("hostile:messages")
@pytest.mark.parametrize(("data", "status"), NO_HTTP.values(), ids=NO_HTTP)
async def test_what_is_no_http_ends_its_own_connection_and_no_other(data: bytes, status: bytes) -> None:
    async with http_server() as caller:
        reader, writer = await asyncio.open_connection("127.0.0.1", caller.server.address.port)
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.read()
            assert answer[9:12] == status, answer
            writer.close()
            async with caller.modern("tools/list") as response:
                assert response.status_code == 200
            while len(caller.server._server.server_state.connections) > 1:  # type: ignore[union-attr]
                await asyncio.sleep(0.01)


async def test_stopping_ends_streams_and_sessions() -> None:
    async with http_server() as caller:
        await caller.initialize()
        async with caller.legacy("hold") as answer, caller.modern("tools/list"):
            await caller.front_of("legacy").next()
            await caller.server.stop()
            assert await messages(answer) == []
        assert all(front.closed.is_set() for front in caller.fronts.fronts)


BODY = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}


MODERN = {**JSON_AND_EVENTS, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}


def _without(headers: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in names}


def _call(name: str) -> dict[str, Any]:
    return {**BODY, "method": "tools/call", "params": {"_meta": META, "name": name, "arguments": {}}}


DEEP = b"[" * 100_000


BAD_TEXT = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":"\xff"}}'


CANCELLED = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}


WRAPPED = {"mcp-method": "tools/call"}


LISTENING = {"accept": "text/event-stream"}


# Name: method, headers, body. SESSION stands for a living session.
SESSION: dict[str, str] = {"mcp-session-id": "SESSION"}


LEGACY = {**JSON_AND_EVENTS, **SESSION}


ODD: dict[str, tuple[str, dict[str, str], Any]] = {
    "modern list": ("POST", MODERN, BODY),
    "modern batch": ("POST", MODERN, [BODY]),
    "modern bad JSON": ("POST", MODERN, b'{"jsonrpc":'),
    "modern empty body": ("POST", MODERN, b""),
    "modern brackets": ("POST", MODERN, DEEP),
    "modern brackets in params": ("POST", MODERN, b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":' + DEEP),
    "modern bad UTF-8": ("POST", MODERN, BAD_TEXT),
    "modern two objects": ("POST", MODERN, json.dumps(BODY).encode() * 2),
    "modern string": ("POST", MODERN, "x"),
    "modern empty object": ("POST", MODERN, {}),
    "modern no jsonrpc": ("POST", MODERN, _without(BODY, "jsonrpc")),
    "modern bool id": ("POST", MODERN, {**BODY, "id": True}),
    "modern object id": ("POST", MODERN, {**BODY, "id": {}}),
    "modern string id": ("POST", MODERN, {**BODY, "id": "x"}),
    "modern huge id": ("POST", MODERN, {**BODY, "id": 10**30}),
    "modern null id": ("POST", MODERN, {**BODY, "id": None}),
    "modern float id": ("POST", MODERN, {**BODY, "id": 1.5}),
    "modern list params": ("POST", MODERN, {**BODY, "params": []}),
    "modern string params": ("POST", MODERN, {**BODY, "params": "x"}),
    "modern null params": ("POST", MODERN, {**BODY, "params": None}),
    "modern list meta": ("POST", MODERN, {**BODY, "params": {"_meta": []}}),
    "modern no params": ("POST", MODERN, _without(BODY, "params")),
    "modern no meta": ("POST", MODERN, {**BODY, "params": {}}),
    "modern version 1.0": ("POST", MODERN, {**BODY, "jsonrpc": "1.0"}),
    "modern reply": ("POST", MODERN, {"jsonrpc": "2.0", "id": 1, "result": {}}),
    "modern notification": ("POST", {**MODERN, "mcp-method": "notifications/cancelled"}, CANCELLED),
    "modern number method": ("POST", MODERN, {**BODY, "method": 5}),
    "modern empty method": ("POST", {**MODERN, "mcp-method": ""}, {**BODY, "method": ""}),
    "modern ping": ("POST", {**MODERN, "mcp-method": "ping"}, {**BODY, "method": "ping"}),
    "modern unknown method": ("POST", {**MODERN, "mcp-method": "no/such"}, {**BODY, "method": "no/such"}),
    "modern initialize": ("POST", {**MODERN, "mcp-method": "initialize"}, INITIALIZE),
    "modern wrong method header": ("POST", {**MODERN, "mcp-method": "tools/call"}, BODY),
    "modern no method header": ("POST", _without(MODERN, "mcp-method"), BODY),
    "modern no name header": ("POST", {**MODERN, "mcp-method": "tools/call"}, _call("echo")),
    "modern wrong name header": ("POST", {**MODERN, "mcp-method": "tools/call", "mcp-name": "x"}, _call("echo")),
    "modern right name header": ("POST", {**MODERN, "mcp-method": "tools/call", "mcp-name": "echo"}, _call("echo")),
    "modern wrapped name": ("POST", {**MODERN, **WRAPPED, "mcp-name": "=?base64?ZWNobw==?="}, _call("echo")),
    "modern badly wrapped name": ("POST", {**MODERN, **WRAPPED, "mcp-name": "=?base64?!?="}, _call("echo")),
    "modern method header in capitals": ("POST", {**MODERN, "mcp-method": "TOOLS/LIST"}, BODY),
    "modern handshake version in header": ("POST", {**MODERN, "mcp-protocol-version": "2025-11-25"}, BODY),
    "modern other version in header": ("POST", {**MODERN, "mcp-protocol-version": "2099-01-01"}, BODY),
    "modern garbage version": ("POST", {**MODERN, "mcp-protocol-version": "x"}, BODY),
    "modern get": ("GET", MODERN, None),
    "modern delete": ("DELETE", MODERN, None),
    "modern head": ("HEAD", MODERN, None),
    "modern options": ("OPTIONS", MODERN, None),
    "modern put": ("PUT", MODERN, BODY),
    "modern no accept": ("POST", _without(MODERN, "accept"), BODY),
    "modern empty accept": ("POST", {**MODERN, "accept": ""}, BODY),
    "modern accept json": ("POST", {**MODERN, "accept": "application/json"}, BODY),
    "modern accept events": ("POST", {**MODERN, "accept": "text/event-stream"}, BODY),
    "modern accept all": ("POST", {**MODERN, "accept": "*/*"}, BODY),
    "modern accept wild": ("POST", {**MODERN, "accept": "application/*;q=0.5, text/*"}, BODY),
    "modern 5 MiB": ("POST", MODERN, {**BODY, "padding": "x" * (5 * 1024 * 1024)}),
    "modern foreign host": ("POST", {**MODERN, "host": "evil.example"}, BODY),
    "modern foreign origin": ("POST", {**MODERN, "origin": "http://evil.example"}, BODY),
    "modern local origin": ("POST", {**MODERN, "origin": "http://127.0.0.1:9999"}, BODY),
    "modern with charset": ("POST", {**MODERN, "content-type": "application/json; charset=utf-8"}, BODY),
    "modern dead session": ("POST", {**MODERN, "mcp-session-id": "dead"}, BODY),
    "legacy initialize": ("POST", JSON_AND_EVENTS, INITIALIZE),
    "legacy initialize without params": ("POST", JSON_AND_EVENTS, _without(INITIALIZE, "params")),
    "legacy initialize as notification": ("POST", JSON_AND_EVENTS, _without(INITIALIZE, "id")),
    "legacy initialize again": ("POST", LEGACY, INITIALIZE),
    "legacy empty session": ("POST", {**JSON_AND_EVENTS, "mcp-session-id": ""}, BODY),
    "legacy no session": ("POST", JSON_AND_EVENTS, BODY),
    "legacy dead session": ("POST", {**JSON_AND_EVENTS, "mcp-session-id": "dead"}, BODY),
    "legacy dead initialize": ("POST", {**JSON_AND_EVENTS, "mcp-session-id": "dead"}, INITIALIZE),
    "legacy list": ("POST", LEGACY, _without(BODY, "params")),
    "legacy known version": ("POST", {**LEGACY, "mcp-protocol-version": "2025-06-18"}, _without(BODY, "params")),
    "legacy unknown version": ("POST", {**LEGACY, "mcp-protocol-version": "1999-01-01"}, BODY),
    "legacy unknown notification": ("POST", LEGACY, {"jsonrpc": "2.0", "method": "notifications/no/such"}),
    "legacy error as reply": ("POST", LEGACY, {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}),
    "legacy notification": ("POST", LEGACY, {"jsonrpc": "2.0", "method": "notifications/initialized"}),
    "legacy reply": ("POST", LEGACY, {"jsonrpc": "2.0", "id": "x", "result": {}}),
    "legacy bad JSON": ("POST", LEGACY, b"{"),
    "legacy brackets": ("POST", LEGACY, DEEP),
    "legacy brackets in params": ("POST", LEGACY, b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":' + DEEP),
    "legacy bad UTF-8": ("POST", LEGACY, BAD_TEXT),
    "legacy empty body": ("POST", LEGACY, b""),
    "legacy 5 MiB": ("POST", LEGACY, {**BODY, "padding": "x" * (5 * 1024 * 1024)}),
    "legacy no accept": ("POST", _without(LEGACY, "accept"), BODY),
    "legacy accept json": ("POST", {**LEGACY, "accept": "application/json"}, BODY),
    "legacy foreign host": ("POST", {**LEGACY, "host": "evil.example"}, BODY),
    "legacy foreign origin": ("POST", {**LEGACY, "origin": "http://evil.example"}, BODY),
    "legacy get without accept": ("GET", {**SESSION, "accept": "application/json"}, None),
    "legacy get without session": ("GET", {"accept": "text/event-stream"}, None),
    "legacy get dead session": ("GET", {"accept": "text/event-stream", "mcp-session-id": "dead"}, None),
    "legacy get": ("GET", {"accept": "text/event-stream", **SESSION}, None),
    "legacy get foreign origin": ("GET", {**SESSION, **LISTENING, "origin": "http://evil.example"}, None),
    "legacy head": ("HEAD", SESSION, None),
    "legacy options": ("OPTIONS", SESSION, None),
    "legacy patch": ("PATCH", LEGACY, BODY),
    "legacy put": ("PUT", LEGACY, BODY),
    "legacy delete dead": ("DELETE", {"mcp-session-id": "dead"}, None),
    "legacy delete without session": ("DELETE", {}, None),
    "legacy delete foreign host": ("DELETE", {**SESSION, "host": "evil.example"}, None),
    "legacy delete": ("DELETE", SESSION, None),
}


# Where we answer otherwise, and why: method, headers, body, our status and code, the SDK's.
Answer = tuple[int, int | None]


CHOSEN: dict[str, tuple[str, dict[str, str], Any, Answer, Answer]] = {
    # Says what is wrong.
    "modern text": ("POST", {**MODERN, "content-type": "text/plain"}, BODY, (415, -32600), (400, None)),
    "modern no content type": ("POST", _without(MODERN, "content-type"), BODY, (415, -32600), (400, None)),
    "legacy text": ("POST", {**LEGACY, "content-type": "text/plain"}, BODY, (415, -32600), (400, None)),
    "legacy no content type": ("POST", _without(LEGACY, "content-type"), BODY, (415, -32600), (400, None)),
    # The SDK takes these for notifications, and their senders wait for ever.
    "legacy bool id": ("POST", LEGACY, {**BODY, "id": True}, (400, -32600), (202, None)),
    "legacy null id": ("POST", LEGACY, {**BODY, "id": None}, (400, -32600), (202, None)),
    "legacy float id": ("POST", LEGACY, {**BODY, "id": 1.5}, (400, -32600), (202, None)),
    # What is no request has no params that could be invalid; in the modern era the SDK says so too.
    "legacy batch": ("POST", LEGACY, [BODY], (400, -32600), (400, -32602)),
    "legacy list params": ("POST", LEGACY, {**BODY, "params": []}, (400, -32600), (400, -32602)),
    "legacy string params": ("POST", LEGACY, {**BODY, "params": "x"}, (400, -32600), (400, -32602)),
    "legacy version 1.0": ("POST", LEGACY, {**BODY, "jsonrpc": "1.0"}, (400, -32600), (400, -32602)),
    # JSON between systems is UTF-8 without a mark, and has no NaN (RFC 8259, 8.1 and 6).
    "modern UTF-16": ("POST", MODERN, json.dumps(BODY).encode("utf-16"), (400, -32700), (200, None)),
    "modern mark": ("POST", MODERN, b"\xef\xbb\xbf" + json.dumps(BODY).encode(), (400, -32700), (200, None)),
    "modern NaN": ("POST", MODERN, BAD_TEXT.replace(b'{"x":"\xff"}', b"NaN"), (400, -32700), (400, -32600)),
    # The SDK's own mistake.
    "legacy get odd event": ("GET", {**SESSION, **LISTENING, "last-event-id": "x"}, None, (400, -32600), (500, None)),
}


class Measured(EchoFront):
    """Knows the methods that the SDK's server below knows."""

    def receive(self, message: Message, channel: Channel) -> None:
        is_request = message.method is not jsonrpc.UNSET and message.id is not jsonrpc.UNSET
        if is_request and message.method not in ("initialize", "tools/list", "tools/call"):
            error = jsonrpc.error_object(jsonrpc.METHOD_NOT_FOUND, "no")
            channel.finish(jsonrpc.failure(message.id, error), jsonrpc.METHOD_NOT_FOUND)
        else:
            super().receive(message, channel)


class MeasuredFronts(Echo):
    def open(
        self, era: Era, transport: str, standalone: Channel, profile: str = "", principal: str = "", name: str = ""
    ) -> EchoFront:
        return Measured(era, standalone, profile, principal, self.version)


async def _status(base: str, method: str, headers: Any, body: Any) -> tuple[int, int | None]:
    """The status, and the code of the JSON-RPC error that came with it."""
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    async with httpx2.AsyncClient(verify=False, base_url=base, timeout=PATIENCE_S) as client:
        if headers.get("mcp-session-id") == "SESSION":
            opened = await client.post("/mcp", json=INITIALIZE, headers=JSON_AND_EVENTS)
            session = {"mcp-session-id": opened.headers["mcp-session-id"]}
            note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await client.post("/mcp", json=note, headers={**JSON_AND_EVENTS, **session})
            headers = {**headers, **session}
        async with client.stream(method, "/mcp", content=content, headers=headers) as response:
            # A stream of 200 may stay open; what it says is not compared here.
            answer = b"" if response.status_code in (200, 202) else await response.aread()
            return response.status_code, _code(answer)


def _code(answer: bytes) -> int | None:
    try:
        code: int = json.loads(answer)["error"]["code"]
    except (ValueError, LookupError, TypeError):
        return None
    return code


@asynccontextmanager
async def both() -> AsyncIterator[tuple[str, str]]:
    import mcp_types as t

    async def listing(ctx: Any, params: Any) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[], ttl_ms=0, cache_scope="private")

    async def calling(ctx: Any, params: Any) -> t.CallToolResult:
        return t.CallToolResult(content=[])

    app = Server("sdk", on_list_tools=listing, on_call_tool=calling).streamable_http_app()
    async with serving(app, lifespan=True) as sdk, http_server(MeasuredFronts()) as caller:
        yield str(caller.http.base_url), sdk


@pytest.mark.slow
@requirement("http:odd-requests")
async def test_odd_requests_get_the_status_and_the_code_that_the_sdk_gives() -> None:
    """Where the SDK gives a status alone, ours comes with an error in words."""
    async with both() as (ours, sdk):
        found = {name: (await _status(ours, *odd), await _status(sdk, *odd)) for name, odd in ODD.items()}
    otherwise = {name: pair for name, pair in found.items() if pair[0] != pair[1] and (pair[0][0], None) != pair[1]}
    assert otherwise == {}


@pytest.mark.slow
@requirement("http:odd-requests")
async def test_odd_requests_we_answer_otherwise() -> None:
    async with both() as (ours, sdk):
        for name, (method, headers, body, our, theirs) in CHOSEN.items():
            found = await _status(ours, method, headers, body), await _status(sdk, method, headers, body)
            assert found == (our, theirs), name
