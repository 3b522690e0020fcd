"""Raw MCP clients for measuring: one over stdio, one over HTTP in either era. They check nothing and cost little."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

Json = dict[str, Any]

LEGACY = "2025-06-18"
MODERN = "2026-07-28"
IDENTITY = {"name": "foretool-bench", "version": "1"}
LINE_LIMIT = 64 * 2**20
"""Bytes of one message; a full list of thousands of tools is several megabytes."""
PATIENCE_S = 60.0


class Failed(Exception):
    """A request was answered with an error, or not at all."""


def result_of(reply: Json) -> Json:
    """Raises `Failed` for an error."""
    if "result" not in reply:
        raise Failed(json.dumps(reply.get("error", reply))[:500])
    result: Json = reply["result"]
    return result


def said(result: Json) -> str:
    """The text of a call's result. Raises `Failed` if the call failed."""
    text = "".join(part.get("text", "") for part in result["content"])
    if result.get("isError"):
        raise Failed(text[:500])
    return text


class StdioClient:
    """A child process that serves MCP on its stdin and stdout, asked in the legacy era."""

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
    ) -> StdioClient:
        """`env` comes on top of ours; stderr goes to `log`."""
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
            waiting = self._waiting.pop(message.get("id"), None) if "method" not in message else None
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        for waiting in self._waiting.values():
            waiting.set_exception(Failed("the process closed its output"))
            waiting.exception()  # seen, even if nobody waits any more

    def tell(self, method: str, **more: Any) -> None:
        assert self.process.stdin is not None
        message = {"jsonrpc": "2.0", "method": method, **more}
        self.process.stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    async def ask(self, method: str, params: Json | None = None, patience_s: float = PATIENCE_S) -> Json:
        """The result of a request. Raises `Failed`, and `TimeoutError`."""
        ident = next(self._ids)
        waiting = self._waiting[ident] = asyncio.get_running_loop().create_future()
        self.tell(method, id=ident, params=params or {})
        async with asyncio.timeout(patience_s):
            return result_of(await waiting)

    async def initialize(self) -> Json:
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": IDENTITY}
        result = await self.ask("initialize", params)
        self.tell("notifications/initialized")
        return result

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
        """Close its input and wait; killed only if it does not end. Returns the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(patience_s):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
        await self._reader
        return await self.process.wait()


class HttpClient:
    """One connection to an MCP endpoint, one request at a time; as many as wanted may share a session."""

    def __init__(self, port: int, version: str = LEGACY, path: str = "/mcp") -> None:
        self.port = port
        self.version = version
        self.path = path
        self.session = ""
        self._ids = itertools.count(1)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def is_modern(self) -> bool:
        return self.version == MODERN

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port, limit=LINE_LIMIT)

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            await self._writer.wait_closed()

    async def initialize(self) -> None:
        """Open a session; the modern era has none."""
        if self.is_modern:
            return
        params = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": IDENTITY}
        await self.ask("initialize", params)
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, "notifications/initialized", "")

    def join(self, other: HttpClient) -> None:
        """Work in the session of another connection, with request ids that it does not use."""
        if other.session:
            self.session, self._ids = other.session, other._ids

    async def end(self) -> None:
        """End the session."""
        if self.session:
            await self._send(b"DELETE", self._headers("", ""), b"")
            await self._receive()

    async def ask(self, method: str, params: Json | None = None, patience_s: float = PATIENCE_S) -> Json:
        """The result of a request. Raises `Failed`, and `TimeoutError`."""
        params = dict(params or {}) | ({"_meta": self.envelope()} if self.is_modern else {})
        request = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        async with asyncio.timeout(patience_s):
            replies = await self._post(request, method, str(params.get("name", "")))
        for reply in replies:
            if reply.get("id") == request["id"] and "method" not in reply:
                return result_of(reply)
        raise Failed(f"{method} was not answered")

    def envelope(self) -> Json:
        """What a modern request says of its sender, in its `_meta`."""
        meta = {"protocolVersion": MODERN, "clientInfo": IDENTITY, "clientCapabilities": {}}
        return {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()} if self.is_modern else {}

    async def call(self, tool: str, arguments: Json, patience_s: float = PATIENCE_S) -> Json:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments}, patience_s)

    async def _post(self, message: Json, method: str, name: str) -> list[Json]:
        body = json.dumps(message, separators=(",", ":")).encode()
        await self._send(b"POST", self._headers(method, name), body)
        return await self._receive()

    def _headers(self, method: str, name: str) -> Json:
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self.is_modern:
            return (
                headers | {"MCP-Protocol-Version": MODERN, "Mcp-Method": method} | ({"Mcp-Name": name} if name else {})
            )
        if self.session:
            headers |= {"MCP-Protocol-Version": self.version, "Mcp-Session-Id": self.session}
        return headers

    async def _send(self, verb: bytes, headers: Json, body: bytes) -> None:
        assert self._writer is not None
        lines = {"Host": f"127.0.0.1:{self.port}", "Content-Length": len(body), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._writer.write(b"%s %s HTTP/1.1\r\n%s\r\n%s" % (verb, self.path.encode(), head.encode(), body))
        await self._writer.drain()

    async def _receive(self) -> list[Json]:
        """The messages of one response. Raises `Failed` for a status that says so."""
        assert self._reader is not None
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.session = headers.get("mcp-session-id", self.session)
        body = await self._body(headers)
        if status.split()[1] not in ("200", "202"):
            raise Failed(f"{status}: {body[:300].decode(errors='replace')}")
        if headers.get("content-type", "").startswith("text/event-stream"):
            return [
                json.loads(line[5:]) for line in body.splitlines() if line.startswith(b"data:") and line[5:].strip()
            ]
        return [json.loads(body)] if body else []

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        assert self._reader is not None
        if headers.get("transfer-encoding") != "chunked":
            return await self._reader.readexactly(int(headers.get("content-length", "0")))
        parts = []
        while size := int(await self._reader.readline(), 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readline()
        await self._reader.readline()
        return b"".join(parts)
