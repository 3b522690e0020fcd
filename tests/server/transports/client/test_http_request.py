"""One HTTP request: its limits of time and of size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from http_callers import (
    JSON_AND_EVENTS,
    Caller,
    deaf,
    http_server,
    messages,
    notice,
)
from http_fakes import PATIENCE_S
from requirements import requirement

from foretool.server.protocol import jsonrpc
from foretool.server.transports.client import http_request
from foretool.server.transports.client.http_request import Turns

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
        monkeypatch.undo()  # on a busy machine we are slow readers ourselves
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


LINES = "".join(f"{name}: {value}\r\n" for name, value in JSON_AND_EVENTS.items())
PART = "x" * 1_000_000


async def sending(
    caller: Caller, more: str = "", part: str = PART
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request that has sent a part of its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", caller.server.address.port)
    writer.write(SLOW_POST.format(more=LINES + more, length=3_000_000, body=part).encode())
    await writer.drain()
    return reader, writer


@requirement("trust:http:bodies")
async def test_large_bodies_together_are_limited_and_keep_no_small_one_out() -> None:
    async with http_server(max_bodies=1_500_000) as caller:
        _, first = await sending(caller)
        async with asyncio.timeout(PATIENCE_S):
            while caller.server._bodies.taken < 900_000:
                await asyncio.sleep(0.01)
        refused, second = await sending(caller)
        async with asyncio.timeout(PATIENCE_S):
            head = await refused.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 2" in head
        async with caller.modern("tools/list", text="x" * 50_000) as response:
            assert response.status_code == 200
        first.close()
        second.close()
        async with asyncio.timeout(PATIENCE_S):
            while caller.server._bodies.taken:
                await asyncio.sleep(0.01)


@requirement("trust:http:bodies")
async def test_without_a_token_no_body_is_read() -> None:
    async with http_server(tokens={"a": ["*"]}) as caller:
        reader, writer = await sending(caller, "expect: 100-continue\r\n", "")
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        assert caller.server._bodies.taken == 0
        writer.close()


@requirement("trust:http:bodies")
async def test_a_body_has_more_time_the_more_of_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_request, "BODY_S", 0.1)
    monkeypatch.setattr(http_request, "BODY_RATE", 1_000_000)
    async with http_server() as caller:
        started = asyncio.get_running_loop().time()
        reader, writer = await sending(caller)
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        assert asyncio.get_running_loop().time() - started > 0.9
        writer.close()


@requirement("limits:size")
@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip", "x"])
async def test_a_compressed_body_is_refused(coding: str) -> None:
    async with http_server() as caller:
        headers = {**JSON_AND_EVENTS, "content-encoding": coding}
        response = await caller.http.post("/mcp", content=b"\x1f\x8b", headers=headers)
        assert response.status_code == 415


@requirement("trust:http:bodies")
async def test_a_few_messages_take_their_turn_in_each_round_and_principals_alternate() -> None:
    turns, passed = Turns(2), []

    async def one(number: int) -> None:
        await turns.wait("late" if number == 6 else "first")
        passed.append((number, rounds[0]))

    rounds = [0]
    tasks = [asyncio.create_task(one(number)) for number in range(7)]
    tasks[4].cancel()
    for _ in range(12):
        await asyncio.sleep(0)
        rounds[0] += 1
    assert [number for number, _ in passed] == [0, 1, 2, 6, 3, 5]
    at = [round_ for _, round_ in passed]
    assert max(at.count(round_) for round_ in at) == 2
    await asyncio.gather(*tasks, return_exceptions=True)
