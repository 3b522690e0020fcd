"""A small balancer: each connection goes to the next replica that says it is ready, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

CHECK_S = 0.2
"""Pause between two questions to a replica whether it is ready."""
ANSWER_S = 1.0


class Balancer:
    """Listens on `port`, which is known once it has started."""

    def __init__(self, backends: Sequence[int]) -> None:
        """`backends`: the ports of the replicas."""
        self.port = 0
        self.ready: set[int] = set()
        self.refused = 0
        """Connections for which no replica was ready."""
        self._backends = list(backends)
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        for port in self._backends:
            self._keep(asyncio.create_task(self._watch(port)))

    async def close(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def wait_for(self, count: int, patience_s: float) -> None:
        """Wait until so many replicas are ready. Raises `TimeoutError`."""
        async with asyncio.timeout(patience_s):
            while len(self.ready) < count:
                await asyncio.sleep(0.02)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, port: int) -> None:
        while True:
            if await is_ready(port):
                self.ready.add(port)
            else:
                self.ready.discard(port)
            await asyncio.sleep(CHECK_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with closing(writer):
            for port in self._in_turn():
                try:
                    behind, before = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    self.ready.discard(port)
                    continue
                async with closing(before):
                    ways = [asyncio.create_task(pump(reader, before)), asyncio.create_task(pump(behind, writer))]
                    for way in ways:
                        self._keep(way)
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                return
            self.refused += 1

    def _in_turn(self) -> list[int]:
        """Return the replicas that are ready, the next one first."""
        self._turn += 1
        turn = self._turn % len(self._backends)
        return [port for port in self._backends[turn:] + self._backends[:turn] if port in self.ready]


@contextlib.asynccontextmanager
async def closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close a connection at the end of the block."""
    try:
        yield
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy bytes until one side ends."""
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()


async def is_ready(port: int) -> bool:
    """Ask a replica whether it is ready."""
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            async with closing(writer):
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                return b" 200 " in await reader.readline()
    except (OSError, TimeoutError):
        return False
