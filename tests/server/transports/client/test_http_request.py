"""One HTTP request: its limits of time and of size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from http_callers import (
    JSON_AND_EVENTS,
    deaf,
    http_server,
    messages,
    notice,
)
from http_fakes import PATIENCE_S
from requirements import requirement

from foretool.server.protocol import jsonrpc
from foretool.server.transports.client import http_request

pytestmark = pytest.mark.anyio


SLOW_POST = "POST /mcp HTTP/1.1\r\nhost: localhost\r\n{more}content-length: {length}\r\n\r\n{body}"


@requirement("http:timeouts")
@pytest.mark.parametrize("body", ["", '{"jsonrpc":'])
async def test_a_body_that_does_not_come_is_not_waited_for(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_request, "BODY_S", 0.05)
    async with http_server() as caller:
        reader, writer = await asyncio.open_connection("127.0.0.1", caller.server.address.port)
        lines = "".join(f"{name}: {value}\r\n" for name, value in JSON_AND_EVENTS.items())
        writer.write(SLOW_POST.format(more=lines, length=100, body=body).encode())
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        writer.close()
        assert len(caller.server.legacy.sessions) == 0


@requirement("http:timeouts")
async def test_a_client_that_takes_nothing_of_a_response_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_request, "STALL_S", 0.05)
    async with http_server() as caller:
        await caller.initialize()
        writer = await deaf(caller, "hold", caller.session)
        _, channel = await caller.front.next()
        (session,) = caller.server.legacy.sessions.values()
        assert session.responses == 1
        for number in range(12):
            channel.send(notice(number, 1_000_000))
        async with asyncio.timeout(PATIENCE_S):
            while session.responses:
                await asyncio.sleep(0.01)
        channel.finish(jsonrpc.result(5, jsonrpc.EMPTY), None)
        async with caller.get(last_event_id="2.-1") as answer:
            assert (await messages(answer))[-1] == {"jsonrpc": "2.0", "id": 5, "result": {}}
        writer.close()


@requirement("limits:size")
@pytest.mark.parametrize("told", [True, False])
async def test_a_message_over_the_limit_is_refused_whether_or_not_its_length_is_told(told: bool) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b" " * 100

    async with http_server(max_body=1000) as caller:
        content = b" " * 3000 if told else parts()
        response = await caller.http.post("/mcp", content=content, headers=JSON_AND_EVENTS)
        assert response.status_code == 413
        assert response.json()["error"]["message"] == "the message is over 1000 bytes"
