"""A raw MCP client over HTTP for measuring, in either era. It checks nothing and costs little."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping

from bench.clients.messages import IDENTITY, LEGACY, LINE_LIMIT, MODERN, PATIENCE_S, Failed, Json, envelope, result_of


class HttpClient:
    """One connection to an MCP endpoint, for one request at a time; several may share a session."""

    def __init__(self, port: int, version: str = LEGACY, path: str = "/mcp", token: str = "") -> None:
        self.port = port
        self.version = version
        self.path = path
        self.session = ""
        self.token = token
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
        """Send a request; its result. Raises `Failed` and `TimeoutError`."""
        params = dict(params or {}) | ({"_meta": self.envelope()} if self.is_modern else {})
        request = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        async with asyncio.timeout(patience_s):
            replies = await self._post(request, method, str(params.get("name", "")))
        for reply in replies:
            if reply.get("id") == request["id"] and "method" not in reply:
                return result_of(reply)
        raise Failed(f"{method} was not answered")

    async def ask_only(self, method: str, params: Json, ident: int) -> None:
        """Send a request, and do not read its answer."""
        params = params | ({"_meta": self.envelope()} if self.is_modern else {})
        body = json.dumps({"jsonrpc": "2.0", "id": ident, "method": method, "params": params}).encode()
        await self._send(b"POST", self._headers(method, str(params.get("name", ""))), body)

    def envelope(self) -> Json:
        """The members of `_meta` by which a modern request names its sender; none in the legacy era."""
        return envelope() if self.is_modern else {}

    async def call(self, tool: str, arguments: Json, patience_s: float = PATIENCE_S) -> Json:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments}, patience_s)

    async def _post(self, message: Json, method: str, name: str) -> list[Json]:
        body = json.dumps(message, separators=(",", ":")).encode()
        await self._send(b"POST", self._headers(method, name), body)
        return await self._receive()

    def _headers(self, method: str, name: str) -> Json:
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
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

    async def _read_head(self) -> tuple[str, dict[str, str]]:
        """The status line of a response, and its headers with small letters."""
        assert self._reader is not None
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        return status, {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    async def _receive(self) -> list[Json]:
        """The messages of one response. Raises `Failed` unless its status is 200 or 202."""
        status, headers = await self._read_head()
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
