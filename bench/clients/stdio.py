"""A raw MCP client over stdio for measuring, in the legacy era. It checks nothing and costs little."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, ClassVar, Self

from bench.clients.messages import IDENTITY, LEGACY, LINE_LIMIT, PATIENCE_S, Failed, Json, result_of


class StdioClient:
    """A child process that serves MCP on its stdin and stdout, asked in the legacy era."""

    identity: ClassVar[Json] = IDENTITY
    """What it says of itself."""

    def __init__(self, process: asyncio.subprocess.Process, started_at: float) -> None:
        self.process = process
        self.started_at = started_at
        """`time.perf_counter` right before the process was started."""
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls, command: Sequence[str], env: Mapping[str, str] | None = None, log: IO[bytes] | None = None
    ) -> Self:
        """Start the command; `env` is added to our environment, stderr goes to `log`."""
        started_at = time.perf_counter()
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe,
            stdout=pipe,
            stderr=log or asyncio.subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
            limit=LINE_LIMIT,
        )
        return cls(process, started_at)

    @classmethod
    @asynccontextmanager
    async def serve(cls, command: Sequence[str], config: Path, patience_s: float = 60.0) -> AsyncIterator[Self]:
        """Run `foretool serve` on a config as long as the block; it then has `patience_s` to end."""
        client = await cls.start([*command, "serve", "--config", str(config)])
        try:
            yield client
        finally:
            await client.stop(patience_s)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def age_s(self) -> float:
        return time.perf_counter() - self.started_at

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            message = json.loads(line)
            if "method" in message:
                self.hear(message)
            elif (waiting := self._waiting.pop(message.get("id"), None)) is not None and not waiting.done():
                waiting.set_result(message)
        for waiting in self._waiting.values():
            waiting.set_exception(Failed("the process closed its output"))
            waiting.exception()  # marks it as seen, because nobody may wait for it any more

    def hear(self, message: Json) -> None:
        """Take a notification or a request of the server; this client ignores both."""

    def tell(self, method: str, **more: Any) -> None:
        """Send a message; `more` are its members beside the method."""
        assert self.process.stdin is not None
        message = {"jsonrpc": "2.0", "method": method, **more}
        self.process.stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    async def ask(self, method: str, params: Json | None = None, patience_s: float = PATIENCE_S) -> Json:
        """Send a request; its result. Raises `Failed` and `TimeoutError`."""
        ident = next(self._ids)
        waiting = self._waiting[ident] = asyncio.get_running_loop().create_future()
        self.tell(method, id=ident, params=params or {})
        async with asyncio.timeout(patience_s):
            return result_of(await waiting)

    async def initialize(self) -> Json:
        """Begin a session; the result of `initialize`."""
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": self.identity}
        result = await self.ask("initialize", params)
        self.tell("notifications/initialized")
        return result

    async def first_list(self) -> tuple[float, list[Json]]:
        """Begin a session and list; the seconds from the start to the list, and the list."""
        await self.initialize()
        listed = await self.tools()
        return round(self.age_s, 3), listed

    async def tools(self) -> list[Json]:
        """The whole list, page by page."""
        tools, cursor = [], None
        while True:
            page = await self.ask("tools/list", {"cursor": cursor} if cursor else {})
            tools += page["tools"]
            cursor = page.get("nextCursor")
            if not cursor:
                return tools

    async def call(self, tool: str, arguments: Json, patience_s: float = PATIENCE_S) -> Json:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments}, patience_s)

    async def stop(self, patience_s: float = 15.0) -> int:
        """Close the process's input and wait for its end, or kill it. Returns the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(patience_s):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
        await self._reader
        return await self.process.wait()
