"""The balancer of the trial sends connections in turn to the replicas that are ready."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from bench.fleet.balancer import Balancer, closing

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def replica(name: bytes, *, ready: bool = True) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readline()
        if asked.startswith(b"GET /readyz"):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" if ready else b"HTTP/1.1 503 No\r\n\r\n")
        else:
            writer.write(name)
        async with closing(writer):
            await writer.drain()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def ask(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with closing(writer):
        writer.write(b"hello\n")
        return await reader.read()


async def test_connections_go_in_turn_to_those_that_are_ready() -> None:
    async with replica(b"one") as one, replica(b"two") as two, replica(b"off", ready=False) as off:
        balancer = Balancer([one, two, off])
        await balancer.start()
        try:
            await balancer.wait_for(2, 10)
            assert {await ask(balancer.port) for _ in range(6)} == {b"one", b"two"}
        finally:
            await balancer.close()


async def test_where_none_is_ready_connections_are_refused() -> None:
    async with replica(b"off", ready=False) as off:
        balancer = Balancer([off])
        await balancer.start()
        try:
            with contextlib.suppress(ConnectionResetError):
                assert await ask(balancer.port) == b""
            assert balancer.refused == 1
        finally:
            await balancer.close()
