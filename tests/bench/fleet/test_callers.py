"""The clients of the trial read streams, resume them, and count what is answered twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from bench.fleet.balancer import closing
from bench.fleet.callers import LegacyCaller, ModernCaller, Seen

pytestmark = pytest.mark.anyio


def stream(*events: str, session: str = "") -> bytes:
    body = "".join(f"{event}\n\n" for event in events).encode()
    named = f"Mcp-Session-Id: {session}\r\n" if session else ""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{named}Transfer-Encoding: chunked\r\n\r\n"
    return head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def reply(ident: int, text: str) -> str:
    return f'id: s.{ident}\ndata: {{"jsonrpc":"2.0","id":{ident},"result":{{"content":[{{"text":"{text}"}}]}}}}'


@contextlib.asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that gives one answer for each connection, and keeps what it was asked."""
    left, asked = list(answers), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        async with closing(writer):
            writer.write(left.pop(0))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, asyncio.timeout(10):
        yield server.sockets[0].getsockname()[1], asked


async def test_an_answer_that_comes_twice_is_counted() -> None:
    seen = Seen()
    async with answering(stream(reply(1, "c:0:0"), reply(1, "c:0:0"))) as (port, _):
        caller = ModernCaller("c", port, "t", seen, hop=1)
        await caller.run(1)
        await caller.close()
    assert (seen.answered, seen.doubled, seen.wrong) == (["c:0:0"], 1, 0)


async def test_a_stream_that_broke_is_resumed_after_its_last_event() -> None:
    seen = Seen()
    broken = stream("id: s.-1\ndata:", session="x")[: -len(b"0\r\n\r\n")]
    async with answering(broken, stream(reply(1, "c:0:0"))) as (port, asked):
        caller = LegacyCaller("c", port, "t", seen, hop=1)
        caller.session = "x"
        await caller.run(1)
        await caller.close()
    assert b"Last-Event-ID: s.-1" in asked[1] and asked[1].startswith(b"GET")
    assert (seen.answered, seen.resumed, seen.interrupted, len(seen.reconnects)) == (["c:0:0"], 1, 0, 1)


async def test_a_call_without_any_event_is_made_again_as_another_attempt() -> None:
    seen = Seen()
    async with answering(b"", b"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n", stream(reply(3, "c:0:2"))) as (
        port,
        _,
    ):
        caller = ModernCaller("c", port, "t", seen, hop=1)
        await caller.run(1)
        await caller.close()
    assert (seen.answered, seen.interrupted, seen.refused) == (["c:0:2"], 2, {503: 1})
