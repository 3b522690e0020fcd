"""The client's pipe: messages in, messages out, and what to say to a line that is none."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os

import pytest
from fakes import FakeUpstream, proxy_over
from requirements import requirement

from foretool.server.transports.client.stdio import WIDE, StdioServer

pytestmark = pytest.mark.anyio


@requirement("limits:size")
async def test_a_line_over_the_limit_is_answered_and_the_next_one_read() -> None:
    async with proxy_over(FakeUpstream("calc")) as stage:
        client = stage.client
        client._lines.limit = 1000
        for piece in (
            b'{"jsonrpc":"2.0","id":1,"method":"',
            b"x" * 2000,
            b'"}\n{"jsonrpc":"2.0","id":2,"method":"ping"}\n',
        ):
            client.feed(piece)
        await client.until(lambda: len(client.messages) == 2)
    assert {message["id"] for message in client.messages} == {1, 2}
    (error,) = [message["error"]["message"] for message in client.messages if "error" in message]
    assert "max_message_mib" in error


@requirement("backpressure:client")
async def test_a_client_that_does_not_read_is_told_less_and_reads_every_answer_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over a real pipe: nothing of it is read until the upstream has said more than the pipe and the mark hold."""
    monkeypatch.setattr("foretool.server.transports.client.stdio.WIDE", 1 << 16)
    reading, writing = os.pipe()
    upstream = FakeUpstream("calc", ["add"])
    upstream.scripts["add"] = lambda asked: (
        [asked.progress(at, message="x" * 10_000) for at in range(300)] and asked.reply({})
    )
    async with proxy_over(upstream) as stage:
        turn = stage.app.turn
        server = StdioServer(stage.app.router, "", 10_000, turn)
        await server._open_output(os.fdopen(writing, "wb", buffering=0))
        server._pipe._transport.set_write_buffer_limits(high=100_000)  # type: ignore[union-attr]
        server._front = stage.app.router.open("legacy", "stdio", server)
        for id in (1, 2):
            params = {"name": "calc__add", "_meta": {"progressToken": "p"}}
            request = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
            server.feed(json.dumps(request).encode() + b"\n")
            await upstream.called("add", id)
            await asyncio.sleep(1)
        assert turn.is_held
        waiting = server._pipe.waiting  # type: ignore[union-attr]
        read = await asyncio.to_thread(_read_until, reading, b'"id":2')
        while turn.is_held:
            await asyncio.sleep(0)
        await server.close()
        await asyncio.sleep(0)
    os.close(reading)
    messages = [json.loads(line) for line in read.splitlines()]
    assert [message["id"] for message in messages if "method" not in message] == [1, 2]
    assert 100_000 < waiting < 4_000_000  # of the six that were said
    assert len(messages) < 500


async def test_an_answer_of_a_megabyte_goes_out_in_one_piece_and_until_it_is_read_the_client_is_being_told() -> None:
    reading, writing = os.pipe()
    async with proxy_over(FakeUpstream("calc")) as stage:
        server = StdioServer(stage.app.router, "", 10_000)
        assert not server.has_unread_output()
        await server._open_output(os.fdopen(writing, "wb", buffering=0))
        answer = b"x" * (WIDE - 1)
        server.send(answer)
        await asyncio.sleep(0)
        assert server._pipe is not None
        in_one_piece = server._pipe.waiting == 0
        server.send(answer)
        await asyncio.sleep(0)
        assert server.has_unread_output()
        read = await asyncio.to_thread(_read_until, reading, b"\nx", 2 * WIDE)
        await asyncio.sleep(0.01)
        assert not server.has_unread_output()
        await server.close()
    os.close(reading)
    assert read == (answer + b"\n") * 2
    assert in_one_piece or not hasattr(fcntl, "F_SETPIPE_SZ")


def _read_until(pipe: int, wanted: bytes, least: int = 0) -> bytes:
    read = b""
    while wanted not in read or not read.endswith(b"\n") or len(read) < least:
        read += os.read(pipe, 1 << 16)
    return read
