"""The attackers of `front_attacks.py`: `python -m bench.trust.front_attackers NAME PORT TOKEN`.

Each attacks the proxy at a port of loopback until it is ended. The first ones have no token, the last ones have one
that leaked. An attacker whose connection is closed opens another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import resource
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from bench.clients.http import HttpClient
from bench.clients.messages import LEGACY, MODERN, Failed

Attack = Callable[[int, str], Awaitable[None]]
MIB: Final = 2**20
HALF_OPEN: Final = 1100
TOOL: Final = "busy__busy_echo"
HEAD: Final = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: */*\r\n"


async def again(step: Callable[[], Awaitable[None]], pause_s: float = 0.0) -> None:
    """Take a step again and again, whatever becomes of it."""
    while True:
        with contextlib.suppress(OSError, EOFError, Failed, TimeoutError, ValueError):
            await step()
        await asyncio.sleep(pause_s)


async def at_once(count: int, step: Callable[[], Awaitable[None]], pause_s: float = 0.0) -> None:
    await asyncio.gather(*(again(step, pause_s) for _ in range(count)))


async def send(port: int, *parts: bytes, pause_s: float = 0.0) -> None:
    """Send bytes on a new connection, and wait until it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause_s)
        while await reader.read(MIB):
            pass
    finally:
        writer.close()


async def half_open(port: int, token: str) -> None:
    """Open connections and send nothing."""
    await at_once(HALF_OPEN, lambda: send(port), pause_s=0.05)


async def slow_headers(port: int, token: str) -> None:
    """Send header lines byte by byte."""
    drip = [b"POST /mcp HTTP/1.1\r\n", *(b"x" for _ in range(10_000))]
    await at_once(HALF_OPEN, lambda: send(port, *drip, pause_s=1.0), pause_s=0.05)


async def reconnects(port: int, token: str) -> None:
    """Open and close connections as fast as possible."""

    async def step() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.transport.abort()

    await at_once(64, step)


async def long_headers(port: int, token: str) -> None:
    """Send header lines without end."""
    await at_once(64, lambda: send(port, b"GET / HTTP/1.1\r\nx: ", *(b"y" * 65_536 for _ in range(1000))))


async def garbage(port: int, token: str) -> None:
    """Send random bytes."""
    await at_once(64, lambda: send(port, os.urandom(10_000)))


async def wrong_tokens(port: int, token: str) -> None:
    """Try tokens, many behind each other on each connection."""
    guess = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %d\r\ncontent-length: 0\r\n\r\n"
    await at_once(32, lambda: send(port, *(b"".join(guess % at for at in range(200)) for _ in range(100))))


async def bodies(port: int, token: str) -> None:
    """Send 2 MiB of each of many bodies, and not the end; without a token."""
    head = f"{HEAD}content-length: {60 * MIB}\r\n\r\n".encode()
    await at_once(400, lambda: send(port, head, bytes(2 * MIB)), pause_s=0.1)


async def bodies_with_token(port: int, token: str) -> None:
    """Send 2 MiB of each of many bodies, and not the end."""
    head = f"{HEAD}authorization: Bearer {token}\r\ncontent-length: {60 * MIB}\r\n\r\n".encode()
    await at_once(400, lambda: send(port, head, bytes(2 * MIB)), pause_s=0.1)


async def initializes(port: int, token: str) -> None:
    """Open sessions, and never end one."""

    async def step() -> None:
        client = HttpClient(port, LEGACY, token=token)
        await client.connect()
        try:
            while True:
                await client.initialize()
                client.session = ""
        finally:
            await client.close()

    await at_once(8, step, pause_s=0.05)


async def streams(port: int, token: str) -> None:
    """Hold more event streams than there may be connections."""
    client = HttpClient(port, LEGACY, token=token)
    await client.connect()
    await client.initialize()
    lines = f"host: localhost\r\naccept: text/event-stream\r\nauthorization: Bearer {token}\r\n"
    head = f"GET /mcp HTTP/1.1\r\n{lines}mcp-session-id: {client.session}\r\n\r\n".encode()
    listen = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen"}
    asking = HttpClient(port, MODERN, token=token)
    body = json.dumps({**listen, "params": {"notifications": {"toolsListChanged": True}, "_meta": asking.envelope()}})
    more = f"authorization: Bearer {token}\r\nmcp-protocol-version: {MODERN}\r\nmcp-method: subscriptions/listen\r\n"
    post = f"{HEAD}{more}content-length: {len(body)}\r\n\r\n{body}".encode()
    await asyncio.gather(
        at_once(50, lambda: send(port, head), pause_s=0.2), at_once(550, lambda: send(port, post), pause_s=0.2)
    )


async def unread(port: int, token: str, version: str = MODERN) -> None:
    """Ask for answers of 1 MiB, and read none of them."""
    ids = itertools.count(1)

    async def step() -> None:
        client = HttpClient(port, version, token=token)
        await client.connect()
        await client.initialize()
        params = {"name": TOOL, "arguments": {"text": "x" * MIB}}
        for _ in range(64):
            await client.ask_only("tools/call", params, next(ids))
            if version == MODERN:
                await asyncio.sleep(3600)
            await client.close()
            await client.connect()

    await at_once(200 if version == MODERN else 16, step, pause_s=0.2)


async def abandoned(port: int, token: str) -> None:
    """Ask for answers of 1 MiB in many legacy sessions, and go away each time: the session keeps them."""
    await unread(port, token, LEGACY)


WITHOUT_TOKEN: Final[dict[str, Attack]] = {
    "half-open": half_open,
    "slow-headers": slow_headers,
    "reconnects": reconnects,
    "long-headers": long_headers,
    "garbage": garbage,
    "wrong-tokens": wrong_tokens,
    "bodies": bodies,
}
WITH_TOKEN: Final[dict[str, Attack]] = {
    "token-bodies": bodies_with_token,
    "token-initializes": initializes,
    "token-streams": streams,
    "token-unread": unread,
    "token-abandoned": abandoned,
}
ATTACKS: Final = {**WITHOUT_TOKEN, **WITH_TOKEN}


def main() -> None:
    """Attack until ended."""
    os.nice(19)  # a real attacker does not use our processors
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    name, port, token = sys.argv[1:]
    asyncio.run(asyncio.wait_for(ATTACKS[name](int(port), token), None))


if __name__ == "__main__":
    main()
