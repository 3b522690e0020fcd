"""HTTP clients of the modern era, over real connections, before a proxy that only echoes."""

from __future__ import annotations

import json

import pytest
from http_callers import (
    JSON_AND_EVENTS,
    deaf,
    http_server,
    notice,
    stream_limit,
)
from requirements import requirement

from foretool.server.protocol import jsonrpc
from foretool.server.transports.client import http_request

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (-32700, 400),
        (-32600, 400),
        (-32602, 400),
        (-32601, 404),
        (-32020, 400),
        (-32021, 400),
        (-32022, 400),
        (-32603, 200),
    ],
)
async def test_the_error_of_a_modern_reply_decides_its_status(code: int, status: int) -> None:
    async with http_server() as caller, caller.modern("fail", code=code) as response:
        assert response.status_code == status
        assert json.loads(await response.aread())["error"]["code"] == code


async def test_a_modern_client_that_is_kept_waiting_gets_a_stream_with_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_request, "PING_S", 0.01)
    async with http_server() as caller, caller.modern("hold") as response:
        lines = response.aiter_lines()
        assert response.headers["content-type"] == "text/event-stream"
        assert await anext(lines) == ": ping"
        _, channel = await caller.front.next()
        channel.finish(jsonrpc.result(1, jsonrpc.EMPTY), None)
        assert [line async for line in lines if line.startswith("data")] == [
            'data: {"jsonrpc":"2.0","id":1,"result":{}}'
        ]


async def test_notifications_of_the_modern_era_are_taken_and_dropped() -> None:
    async with http_server() as caller:
        body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        for version, status in (("2026-07-28", 202), ("2099-01-01", 400)):
            headers = {**JSON_AND_EVENTS, "mcp-protocol-version": version}
            assert (await caller.http.post("/mcp", json=body, headers=headers)).status_code == status
        assert caller.fronts.fronts == []


async def test_an_argument_must_equal_its_header() -> None:
    schema = {"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    async with http_server(input_schema=lambda profile, tool: schema if tool == "sql" else None) as caller:
        for region, status in (("eu", 200), ("us", 400)):
            extra = {"mcp-name": "sql", "mcp-param-region": region}
            async with caller.modern("tools/call", extra=extra, name="sql", arguments={"region": "eu"}) as response:
                assert response.status_code == status
        async with caller.modern("tools/call", extra={"mcp-name": "other"}, name="other") as response:
            assert response.status_code == 200


@requirement("http:slow-client")
async def test_a_modern_client_that_does_not_read_is_cut_off_and_holds_up_nobody() -> None:
    async with http_server() as caller:
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "hold"}
        writer = await deaf(caller, "hold", headers)
        _, channel = await caller.front_after_call()
        while caller.front.cancelled.empty():
            channel.send(notice(0, 1_000_000))
            assert channel.size < 2 * stream_limit()  # type: ignore[attr-defined]
            async with caller.modern("tools/list") as response:
                assert response.status_code == 200
        writer.close()
