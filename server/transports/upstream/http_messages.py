"""What servers send over streamable HTTP: reads bodies and streams of events, and delivers the messages in them."""

from __future__ import annotations

import asyncio
from typing import Final

import httpx2
from msgspec import Raw

from foretool.server.protocol import headers as http_headers
from foretool.server.protocol import jsonrpc, loose_messages
from foretool.server.protocol.headers import EVENTS, JSON
from foretool.server.protocol.jsonrpc import BadMessage, Message
from foretool.server.transports.allowance import Allowance, Answers
from foretool.server.transports.upstream import http_client
from foretool.server.transports.upstream.base import Receiver
from foretool.server.transports.upstream.http_client import names_lost_session
from foretool.server.transports.upstream.sse import EventParser, TooLarge
from foretool.storage.records import Era

_DRAIN_S: Final = 1.0
"""Longest wait for the end of a stream after the reply: only then can the next request use the connection."""
_MOST_IN_BATCH: Final = 100
"""Messages of a batch that are read; we send one request at a time."""
_MOST_HELD: Final = 2
"""Parts of messages that one server may have sent us at a time, in messages of the largest size."""
ERROR_BYTES: Final = 1024 * 1024
"""The largest body of a failed request."""


class HttpSession:
    """The id and the headers of a legacy session; the modern era has no session."""

    def __init__(self, era: Era) -> None:
        self.era: Era = era
        self.id: str | None = None
        self.version: str | None = None
        """The version of the protocol that the server has chosen."""

    def begin(self, ident: str | None) -> None:
        """Take the id that the server has given with its answer to `initialize`."""
        self.id = _visible(ident)

    def headers(self, message: Message | None = None) -> dict[str, str]:
        """Return the headers of a message, or of a request without one."""
        headers = {"accept": f"{JSON}, {EVENTS}", "content-type": JSON}
        if self.era == "modern":
            if message is not None and isinstance(message.method, str):
                headers |= http_headers.request_headers(message.method, jsonrpc.fields(message.params))
            return headers
        if message is None or message.method != "initialize":
            if self.id is not None:
                headers[http_headers.SESSION] = self.id
            if self.version is not None:
                headers[http_headers.VERSION] = self.version
        return headers

    def is_lost_by(self, reply: Message) -> bool:
        """Return whether this error may mean that the server no longer knows the session."""
        return self.id is not None and isinstance(reply.error, Raw) and names_lost_session(bytes(reply.error))


class MessageReader:
    """Reads what one server sends over one link."""

    def __init__(
        self, receiver: Receiver, limit: int, session: HttpSession, allowance: Allowance, answers: Answers
    ) -> None:
        self._receiver = receiver
        self._limit = limit
        self._session = session
        self._allowance = allowance
        self._answers = answers
        self._held = 0
        """Bytes of messages that are not complete, over all streams."""
        self.doubted: dict[int, Message] = {}
        """By request: an error of its server that may mean that our session is lost."""

    async def read(
        self, response: httpx2.Response, events: EventParser, request: int | None, message: Message | None
    ) -> bool:
        """Deliver what a stream brings until it ends. Returns whether the reply was among it."""
        answered, held, read = False, 0, 0
        events.restart()
        try:
            async with asyncio.timeout(None) as patience:
                async for chunk in http_client.read_body(response):
                    read += len(chunk)
                    if request is not None and read <= self._limit:
                        self._allowance.note_part(len(chunk))
                    for event in events.feed(chunk):
                        if event.type == "message" and self.deliver(event.data, request, message) and not answered:
                            answered = True
                            patience.reschedule(asyncio.get_running_loop().time() + _DRAIN_S)
                    grown, held = events.held - held, events.held
                    self._hold(grown)
                    await self._allowance.wait()
                    await self._answers.wait_for_room()
            if request is not None and not answered and _is_message(rest := events.rest()):
                # Some servers end the stream without the empty line that ends an event.
                answered = self.deliver(rest, request, message)
        except TimeoutError:
            pass  # the server keeps the stream open after its reply
        except httpx2.HTTPError:
            if not answered and not (self._session.era == "legacy" and events.last_id):
                raise
        finally:
            self._held -= held
        return answered

    def deliver(self, data: bytes | bytearray, request: int | None, asked: Message | None) -> bool:
        """Deliver a message, or a batch of them. Returns whether the reply to `request` is among it."""
        if data.startswith(b"["):
            return any([self.deliver(part, request, asked) for part in _batch(data)])
        try:
            message = loose_messages.decode(data)
        except BadMessage:
            self._receiver.on_invalid_line(bytes(data[:ERROR_BYTES]))
            broken = loose_messages.find_broken_reply(data)
            if broken is None or (request is not None and broken.id not in (None, request)):
                return False
            self._receiver.on_unreadable(broken.id if request is None else request)
            return request is not None
        if message.is_reply:
            self._allowance.note_reply(len(data))
        is_reply = request is not None and message.is_reply
        if is_reply and (message.id is None or str(message.id) == str(request)):
            # The stream belongs to this request alone, so an error without an id is its reply too.
            message.id = request
        else:
            is_reply = False
        if is_reply and asked is not None and self._session.is_lost_by(message):
            assert request is not None
            self.doubted[request] = message
            return True
        if is_reply and asked is not None and asked.method == "initialize":
            self._session.version = _visible(jsonrpc.member(message.result, "protocolVersion"))
        self._receiver.on_message(message, request)
        return is_reply

    async def read_whole(self, response: httpx2.Response, limit: int | None = None) -> bytes | bytearray:
        """Read a body. Raises `TooLarge`."""
        body = bytearray()
        try:
            async for piece in http_client.read_body(response):
                body += piece
                self._allowance.note_part(len(piece))
                self._hold(len(piece))
                await self._allowance.wait()
                if len(body) > (self._limit if limit is None else limit):
                    raise TooLarge
            return body
        finally:
            self._held -= len(body)

    def _hold(self, size: int) -> None:
        """Count what the server has sent of messages that are not complete. Raises `TooLarge`."""
        self._held += size
        if self._held > _MOST_HELD * self._limit:
            raise TooLarge


def _batch(data: bytes | bytearray) -> list[bytes]:
    """Return the messages of a batch, which only revision 2025-03-26 has; none where it is not one."""
    try:
        return [
            part for each in jsonrpc.items(bytes(data))[:_MOST_IN_BATCH] if not (part := bytes(each)).startswith(b"[")
        ]
    except ValueError:
        return []


def _is_message(data: bytes) -> bool:
    try:
        jsonrpc.decode(data)
    except BadMessage:
        return False
    return True


def _visible(value: str | None) -> str | None:
    """Return the value if it may be sent back in a header, else None."""
    return value if value and value.isascii() and value.isprintable() and " " not in value else None
