"""A TCP proxy on loopback that delivers each piece of data some milliseconds late, as a network does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class SlowNetwork:
    """Connections to one port arrive at another one; `delay_s` is the way in one direction and may be changed."""

    def __init__(self, host: str, port: int, delay_s: float) -> None:
        """`host` may be the folder of a Unix socket of PostgreSQL."""
        self.delay_s = delay_s
        self.is_mute = False
        """Delivers no answer while it is set, and keeps all of them."""
        self.mutes = ""
        """From a request on that has this in it, no answer is delivered."""
        self.turns = 0
        """How often clients have sent something after an answer: the round trips."""
        self._is_answered = True
        self.port = 0
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """End all connections at once."""
        self._loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        for each in self._writers:
            each.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer, answers=True))
        self._writers -= {writer, back}

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._target
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await pieces.get()
                await asyncio.sleep(max(due - self._loop.time(), 0.0))
                while answers and self.is_mute:
                    await asyncio.sleep(0.01)
                if not data:
                    break
                self._is_answered |= answers
                writer.write(data)
            writer.close()

        delivery = asyncio.create_task(deliver())
        with suppress(OSError):
            while data := await reader.read(65_536):
                if not answers:
                    self.is_mute |= bool(self.mutes) and self.mutes.encode() in data
                    self.turns += self._is_answered
                    self._is_answered = False
                pieces.put_nowait((self._loop.time() + self.delay_s, data))
        pieces.put_nowait((0.0, b""))
        with suppress(OSError):
            await delivery

    async def _run(self, ready: threading.Event, ended: asyncio.Event) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await ended.wait()
        server.close()
        for each in list(self._writers):
            each.transport.abort()
        await asyncio.sleep(0.05)

    @contextmanager
    def running(self) -> Iterator[SlowNetwork]:
        """Deliver until the block ends, in a thread."""
        ready, ended = threading.Event(), asyncio.Event()
        thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run(ready, ended)))
        thread.start()
        ready.wait(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(ended.set)
            thread.join()
            self._loop.close()
