"""The client's pipe: messages in, messages out, and what to say to a line that is none."""

from __future__ import annotations

import json

import pytest
from fakes import FakeUpstream, SwiftLoop, proxy_over

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": SwiftLoop}


async def test_messages_are_read_however_the_pipe_cuts_them() -> None:
    async with proxy_over(FakeUpstream("calc")) as stage:
        client = stage.client
        data = b"".join(
            json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}).encode() + end
            for number, end in enumerate((b"\n", b"\r\n", b"\n\n\n", b"\n"))
        )
        for place in range(len(data)):
            client.feed(data[place : place + 1])
        await client.until(lambda: len(client.messages) == 4)
    assert [(message["id"], message["result"]) for message in client.messages] == [(number, {}) for number in range(4)]


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
    assert {message["id"] for message in client.messages} == {None, 2}
    (error,) = [message["error"]["message"] for message in client.messages if "error" in message]
    assert "max_message_mib" in error


async def test_the_end_of_input_is_noted_once() -> None:
    async with proxy_over(FakeUpstream("calc")) as stage:
        assert not stage.client.closed.is_set()
        stage.client.lost()
        stage.client.lost()
        assert stage.client.closed.is_set()
