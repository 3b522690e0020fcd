"""HTTP clients that watch the stream of a call, drop it, come back for the rest, or cancel; every answer is counted."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from bench.clients.http import HttpClient
from bench.clients.messages import PATIENCE_S, Failed

Json = dict[str, Any]


class Tally:
    """Counts the replies of each request over all connections, by session and id."""

    def __init__(self) -> None:
        self.replies: Counter[tuple[str, Any]] = Counter()

    def count(self, session: str, message: Json) -> None:
        if "method" not in message:
            self.replies[session, message.get("id")] += 1

    @property
    def twice(self) -> int:
        return sum(count > 1 for count in self.replies.values())


class TalliedClient(HttpClient):
    """A connection whose replies are counted; a modern one has its own name in place of a session."""

    def __init__(self, port: int, version: str, tally: Tally, name: str) -> None:
        super().__init__(port, version)
        self.tally = tally
        self.name = name

    async def _receive(self) -> list[Json]:
        messages = await super()._receive()
        for message in messages:
            self.tally.count(self.session or self.name, message)
        return messages

    async def say(self, method: str, params: Json) -> None:
        """Send a notification."""
        await self._post({"jsonrpc": "2.0", "method": method, "params": params}, method, "")

    def stream(self) -> Stream:
        """A new connection in the same session."""
        return Stream(self)


class Stream(HttpClient):
    """A request on its own connection, whose answer is read event by event."""

    def __init__(self, client: TalliedClient) -> None:
        super().__init__(client.port, client.version)
        self.join(client)
        self._ids, self._client = client._ids, client
        self.id: Any = None
        self.last_id = ""
        """The id of the last event, after which `get` can resume."""
        self._headers_in: Mapping[str, str] = {}
        self._chunk = b""

    async def call(self, tool: str, arguments: Json, patience_s: float = PATIENCE_S, **meta: Any) -> Json:
        """Send a call and read the head of the answer, which comes before any event."""
        return await self.begin("tools/call", {"name": tool, "arguments": arguments, "_meta": meta}, tool)

    async def begin(self, method: str, params: Json, name: str = "") -> Json:
        """Send a request and read the head of the answer."""
        self.id = next(self._ids)
        params = {**params, "_meta": {**self.envelope(), **params.get("_meta", {})}}
        body = {"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}
        await self.connect()
        await self._send(b"POST", self._headers(method, name), json.dumps(body).encode())
        await self._head()
        return body

    async def get(self, last_id: str = "") -> None:
        """Open the stream of messages that belong to no request, or the rest of another stream."""
        await self.connect()
        more = {"Last-Event-ID": last_id} if last_id else {}
        await self._send(b"GET", self._headers("", "") | {"Accept": "text/event-stream"} | more, b"")
        await self._head()

    async def _head(self) -> None:
        status, self._headers_in = await self._read_head()
        if status.split()[1] != "200":
            raise Failed(status)

    async def next(self, patience_s: float = PATIENCE_S) -> Json | None:
        """The next message; None at the end of the stream. Raises `TimeoutError`."""
        async with asyncio.timeout(patience_s):
            message = await (
                self._event() if "event-stream" in self._headers_in.get("content-type", "") else self._json()
            )
        if message is not None:
            self._client.tally.count(self._client.session or self._client.name, message)
        return message

    async def _json(self) -> Json | None:
        if not self._headers_in:
            return None
        body = await self._body(self._headers_in)
        self._headers_in = {}
        return dict(json.loads(body))

    async def _event(self) -> Json | None:
        data = b""
        while (line := await self._line()) is not None:
            if line.startswith(b"id: "):
                self.last_id = line[4:].decode()
            elif line.startswith(b"data: "):
                data = line[6:]
            elif not line and data:
                return dict(json.loads(data))
        return None

    async def _line(self) -> bytes | None:
        """The next line of the stream, joined across chunks; None at its end."""
        assert self._reader is not None
        while b"\n" not in self._chunk:
            size = int((await self._reader.readline()) or b"0", 16)
            if not size:
                return None
            self._chunk += await self._reader.readexactly(size)
            await self._reader.readline()
        line, self._chunk = self._chunk.split(b"\n", 1)
        return line

    async def answer(self, patience_s: float = PATIENCE_S) -> tuple[list[Json], Json | None]:
        """The notifications from here on, and the reply; None where the stream ends without a reply."""
        notes: list[Json] = []
        while (message := await self.next(patience_s)) is not None:
            if "method" not in message and message.get("id") == self.id:
                return notes, message
            notes.append(message)
        return notes, None

    def drop(self) -> None:
        """Break the connection at once."""
        if self._writer is not None:
            self._writer.transport.abort()
