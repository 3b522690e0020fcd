"""Clients that call a tool again and again through a balancer, and go on when the replica behind it dies.

A modern client sends a call again when its connection breaks. A legacy one resumes the stream of the call by the last
event that it got, and sends the call again where it got none. Each attempt has a text of its own, so that the records
show which attempts were recorded, and how often.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import TypeVar

from msgspec import Struct, field

from bench.clients.messages import MODERN, Json

LEGACY = "2025-11-25"
"""The first version whose streams can be resumed before their first message."""
IDENTITY = {"name": "foretool-fleet", "version": "1"}
AGAIN_S = 0.05
"""Pause before a client tries again."""
GIVE_UP_S = 60.0
"""A call without an answer for so long counts as lost."""
_Key = TypeVar("_Key", int, str)


class Broken(Exception):
    """The connection ended before the answer."""


class Refused(Exception):
    """A status other than 200 and 202."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body[:200].decode(errors='replace')}")
        self.status = status


class Seen(Struct):
    """What the clients saw."""

    answered: list[str] = field(default_factory=list)
    """The texts of the attempts that were answered with their result."""
    interrupted: int = 0
    """Attempts that ended without a result, and were made again."""
    resumed: int = 0
    """Attempts whose answer came after a stream was resumed."""
    lost: int = 0
    """Calls that were given up."""
    doubled: int = 0
    """Answers beyond the first one to a request."""
    wrong: int = 0
    """Answers of another call."""
    sessions_lost: int = 0
    """Sessions that no replica knew any more."""
    refused: dict[int, int] = field(default_factory=dict)
    """By HTTP status: refusals after which the client tried again."""
    reconnects: list[float] = field(default_factory=list)
    """Seconds from a broken connection until the next response."""
    errors: dict[str, int] = field(default_factory=dict)
    """By message: error replies, and results that say so."""

    def count(self, table: dict[_Key, int], key: _Key) -> None:
        table[key] = table.get(key, 0) + 1


class Wire:
    """One HTTP connection at a time, given up after `hop` requests, so that the next one reaches another replica."""

    def __init__(self, port: int, hop: int) -> None:
        self._port = port
        self._hop = hop
        self._left = 0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def close(self) -> None:
        writer, self._reader, self._writer = self._writer, None, None
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def send(self, verb: str, headers: Mapping[str, str], body: bytes = b"") -> tuple[int, dict[str, str]]:
        """Send a request; return the status and the headers of its response. Raises `Broken`."""
        try:
            if self._writer is None or self._left <= 0:
                await self.close()
                self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**22)
                self._left = self._hop
            self._left -= 1
            assert self._writer is not None and self._reader is not None
            lines = {"Host": "127.0.0.1", "Content-Length": str(len(body)), **headers}
            head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            self._writer.write(f"{verb} /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
            await self._writer.drain()
            status, *rest = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except (OSError, EOFError) as error:
            await self.close()
            raise Broken from error
        found = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        return int(status.split()[1]), found

    async def parts(self, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raises `Broken`."""
        assert self._reader is not None
        try:
            if headers.get("transfer-encoding") != "chunked":
                yield await self._reader.readexactly(int(headers.get("content-length", "0")))
                return
            while size := int(await self._reader.readline() or b"x", 16):
                yield await self._reader.readexactly(size)
                await self._reader.readline()
            await self._reader.readline()
        except (OSError, EOFError, ValueError) as error:
            await self.close()
            raise Broken from error

    async def body(self, headers: Mapping[str, str]) -> bytes:
        return b"".join([part async for part in self.parts(headers)])


class Caller:
    """One client, which calls one tool."""

    def __init__(self, name: str, port: int, tool: str, seen: Seen, hop: int = 10, token: str = "") -> None:
        self.name = name
        self.session = ""
        self.last_event = ""
        self._tool = tool
        self._seen = seen
        self._wire = Wire(port, hop)
        self._token = token
        self._ids = itertools.count(1)
        self._broken_at = 0.0

    async def close(self) -> None:
        await self._wire.close()

    async def run(self, calls: int, pause_s: float = 0.0) -> None:
        """Make so many calls, one after the other."""
        for number in range(calls):
            try:
                async with asyncio.timeout(GIVE_UP_S):
                    await self._call(number)
            except TimeoutError:
                self._seen.lost += 1
                await self._wire.close()
            await asyncio.sleep(pause_s)

    async def _call(self, number: int) -> None:
        for attempt in itertools.count():
            text = f"{self.name}:{number}:{attempt}"
            reply = await self._attempt(text)
            if reply is not None:
                result = reply.get("result", {})
                said = result["content"][0]["text"] if result else str(reply["error"]["message"])
                if result and not result.get("isError"):
                    self._seen.wrong += text not in said
                    self._seen.answered.append(text)
                    return
                self._seen.count(self._seen.errors, said[:200])
            self._seen.interrupted += 1
            await asyncio.sleep(AGAIN_S)

    async def _attempt(self, text: str) -> Json | None:
        """Make one attempt; return the reply, None where it was interrupted."""
        raise NotImplementedError

    # -- one request

    async def _exchange(self, verb: str, headers: Mapping[str, str], message: Json | None, ident: int) -> Json | None:
        """Send a request and return the reply to `ident`. Raises `Broken` and `Refused`."""
        body = b"" if message is None else json.dumps(message, separators=(",", ":")).encode()
        common = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self._token:
            common["Authorization"] = f"Bearer {self._token}"
        try:
            status, found = await self._wire.send(verb, {**common, **headers}, body)
        except Broken:
            self._broken_at = self._broken_at or time.monotonic()
            raise
        if self._broken_at and status < 500:
            self._seen.reconnects.append(time.monotonic() - self._broken_at)
            self._broken_at = 0.0
        self.session = found.get("mcp-session-id", self.session)
        try:
            if status not in (200, 202):
                raise Refused(status, await self._wire.body(found))
            return await self._reply(found, ident)
        except Broken:
            self._broken_at = time.monotonic()
            raise

    async def _reply(self, headers: Mapping[str, str], ident: int) -> Json | None:
        if not headers.get("content-type", "").startswith("text/event-stream"):
            body = await self._wire.body(headers)
            return json.loads(body) if body else None
        replies: list[Json] = []
        waiting = b""
        async for part in self._wire.parts(headers):
            waiting += part
            *events, waiting = waiting.split(b"\n\n")
            for event in events:
                self._take(event, ident, replies)
        self._seen.doubled += max(0, len(replies) - 1)
        return replies[0] if replies else None

    def _take(self, event: bytes, ident: int, replies: list[Json]) -> None:
        for line in event.decode().split("\n"):
            name, _, value = line.partition(": ")
            if name == "id":
                self.last_event = value
            elif name == "data" and value:
                message = json.loads(value)
                if message.get("id") == ident and "method" not in message:
                    replies.append(message)

    async def _pause(self, error: Broken | Refused) -> None:
        if isinstance(error, Refused):
            self._seen.count(self._seen.refused, error.status)
        await asyncio.sleep(AGAIN_S)


class ModernCaller(Caller):
    """A client of 2026-07-28: each request stands alone."""

    async def _attempt(self, text: str) -> Json | None:
        meta = {"protocolVersion": MODERN, "clientInfo": IDENTITY, "clientCapabilities": {}}
        params = {
            "name": self._tool, "arguments": {"text": text},
            "_meta": {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()},
        }  # fmt: skip
        ident = next(self._ids)
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": self._tool}
        message = {"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}
        try:
            return await self._exchange("POST", headers, message, ident)
        except (Broken, Refused) as error:
            await self._pause(error)
            return None


class LegacyCaller(Caller):
    """A client with a session, which resumes the streams of its calls."""

    async def initialize(self) -> None:
        """Begin a session, however often it has to try."""
        while True:
            self.session = ""
            params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": IDENTITY}
            message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            try:
                if await self._exchange("POST", {}, message, 0) is None:
                    continue
                started = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                await self._exchange("POST", self._headers(), started, 0)
            except (Broken, Refused) as error:
                await self._pause(error)
            else:
                return

    def _headers(self) -> dict[str, str]:
        return {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": self.session}

    async def _attempt(self, text: str) -> Json | None:
        if not self.session:
            await self.initialize()
        ident = next(self._ids)
        params = {"name": self._tool, "arguments": {"text": text}}
        message = {"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}
        self.last_event = ""
        try:
            return await self._exchange("POST", self._headers(), message, ident)
        except Refused as error:
            self._forget_session(error)
            await self._pause(error)
            return None
        except Broken:
            return await self._resume(ident) if self.last_event else None

    async def _resume(self, ident: int) -> Json | None:
        while True:
            await asyncio.sleep(AGAIN_S)
            headers = {**self._headers(), "Last-Event-ID": self.last_event}
            try:
                reply = await self._exchange("GET", headers, None, ident)
            except Broken:
                continue
            except Refused as error:
                self._forget_session(error)
                await self._pause(error)
                if error.status < 500:
                    return None
                continue
            if reply is not None:
                self._seen.resumed += 1
                return reply

    def _forget_session(self, error: Refused) -> None:
        if error.status == 404:
            self._seen.sessions_lost += 1
            self.session = ""

    async def end(self) -> None:
        """End the session."""
        with contextlib.suppress(Broken, Refused):
            await self._exchange("DELETE", self._headers(), None, 0)
