"""Upstreams over HTTP+SSE, the transport of 2024-11-05: one long GET stream to us, a POST for each message of ours.

It is deprecated, but servers in the field still speak it. The first event of the stream, `endpoint`, names where to
POST. `EventParser`, which the newer HTTP transport uses too, reads server-sent events (HTML standard, section 9.2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

import httpx2
from msgspec import UNSET

from foretool.server.protocol import loose_messages
from foretool.server.protocol.headers import EVENTS, JSON
from foretool.server.protocol.jsonrpc import BadMessage, Message
from foretool.server.transports.allowance import REPLY_S, Allowance, Answers, metered
from foretool.server.transports.tasks import Tasks
from foretool.server.transports.upstream import http_client
from foretool.server.transports.upstream.base import Authorizer, Link, LinkError, Receiver
from foretool.server.transports.upstream.http_client import (
    AuthorizedClient,
    Certificate,
    RequestFailed,
    SendRefused,
    names_lost_session,
)

_ENDPOINT_S: Final = 20.0
"""Longest wait for the `endpoint` event."""

_ID_BYTES: Final = 4096
"""A longer id of an event is ignored: it would have to be sent back in a header."""

_LINE_BYTES: Final = 48
"""What each further line of data costs in memory besides its text; an event can have millions of short ones."""


class SseEvent(NamedTuple):
    type: str
    data: bytes


class TooLarge(Exception):
    """An event, or one of its lines, is larger than the limit."""


class EventParser:
    """Parses one stream of events, which may go on over several connections, with a limit on the size of one event.
    `last_id` and `retry_ms` are the last ones that the server sent; `seen` counts events with and without data."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.last_id = ""
        self.retry_ms: int | None = None
        self.seen = 0
        self.restart()

    def restart(self) -> None:
        """Begin a new connection; drop what was cut off on the last one."""
        self._line: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._first = True
        self._clear()

    def _clear(self) -> None:
        self._type = "message"
        self._data: list[bytes] = []
        self._id = self.last_id

    @property
    def held(self) -> int:
        """How many bytes of an event that is not complete are kept."""
        return self._size

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Yield the events that `chunk` completes. Raises `TooLarge`; the stream cannot be used after that."""
        if not chunk:
            return
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._keep(line)
            whole = b"".join(self._line)
            self._line = []
            if (event := self._take(whole)) is not None:
                yield event
        self._keep(rest)

    def rest(self) -> bytes:
        """Return the data of the event that the stream broke off in, as far as it came; b"" if there is none."""
        name, _, value = b"".join(self._line).partition(b":")
        return b"\n".join([*self._data, value] if name == b"data" else self._data)

    def _keep(self, part: bytes) -> None:
        # The size of an event is the sum of its lines and of what they cost, so one limit covers all.
        self._size += len(part)
        if self._size > self.limit:
            raise TooLarge
        self._line.append(part)

    def _take(self, line: bytes) -> SseEvent | None:
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            return self._end()
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if name == b"data":
            self._size += _LINE_BYTES if self._data else 0
            self._data.append(value)
        elif name == b"event":
            self._type = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value and len(value) <= _ID_BYTES:
            self._id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit():
            self.retry_ms = int(value[:9])
        elif not name:
            self._size -= len(line)  # a comment is not part of an event, and there may be very many
        return None

    def _end(self) -> SseEvent | None:
        self.last_id = self._id
        data = b"\n".join(self._data)
        event = SseEvent(self._type, data) if data else None
        self.seen += 1
        self._size = 0
        self._clear()
        return event


class SseLink(Link):
    """A link to one server; `open_sse` makes it. This transport does not tell to which request a message belongs."""

    def __init__(
        self, url: str, headers: Mapping[str, str], receiver: Receiver, limit: int,
        authorizer: Authorizer | None = None, cert: Certificate = None, allowance: Allowance | None = None,
    ) -> None:  # fmt: skip
        self._url = url
        """Where the stream is read; a redirect may lead there."""
        self._receiver = receiver
        self._events = EventParser(limit)
        self._tasks = Tasks(f"link to {http_client.origin(url)}")
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._gone = False
        self._allowance = allowance = allowance or Allowance()
        self._client = AuthorizedClient(url, headers, authorizer, cert, allowance)
        self._answers = Answers()

    async def connect(self) -> None:
        """Open the stream and wait for the endpoint. Raises `LinkError`."""
        self._tasks.spawn(metered(self._stream, self._allowance))
        try:
            async with asyncio.timeout(_ENDPOINT_S):
                await asyncio.shield(self._endpoint)
        except TimeoutError:
            await self.close()
            raise LinkError(f"sent no endpoint event within {_ENDPOINT_S:g} s: is it a server of 2024-11-05?") from None
        except LinkError:
            await self.close()
            raise

    def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if message.method is not UNSET and message.id is not UNSET:
            self._allowance.note_request()
        if message.method is UNSET:
            begin, free_s = partial(self._answers.send, partial(self._post, message)), 0.0
        else:
            begin, free_s = partial(self._post, message), REPLY_S
        if self._gone or self._tasks.spawn(metered(begin, self._allowance, free_s)) is None:
            self._failed(message, "the link is closed", sent=False)

    async def close(self) -> None:
        self._gone = True
        await self._tasks.close()
        await self._client.aclose()
        if self._endpoint.done() and not self._endpoint.cancelled():
            self._endpoint.exception()  # retrieved, or asyncio would log that nobody did

    async def _stream(self) -> None:
        try:
            async with self._client.stream("GET", self._url, headers={"accept": EVENTS}) as response:
                if response.status_code != 200:
                    self._lost(http_client.describe_status(response.status_code))
                    return
                self._url = str(response.url)
                async for chunk in http_client.read_body(response):
                    for event in self._events.feed(chunk):
                        self._on_event(event)
                    await self._allowance.wait()
                    await self._answers.wait_for_room()
            self._lost("ended its event stream")
        except RequestFailed as error:
            self._lost(str(error))
        except TooLarge:
            self._lost(f"sent an event of more than {self._events.limit} bytes; raise max_message_mib to read it")
        except httpx2.HTTPError as error:
            verb = "cannot be reached at" if http_client.is_unsent(error) else "broke off its event stream at"
            self._lost(f"{verb} {http_client.origin(self._url)} ({http_client.describe_error(error)})")

    def _on_event(self, event: SseEvent) -> None:
        """Deliver what an event brings."""
        if event.type == "endpoint":
            self._on_endpoint(event.data.decode(errors="replace").strip())
        elif event.type == "message":
            try:
                message = loose_messages.decode(event.data)
            except BadMessage:
                self._receiver.on_invalid_line(event.data)
                if (broken := loose_messages.find_broken_reply(event.data)) is not None:
                    self._receiver.on_unreadable(broken.id)
            else:
                if message.is_reply:
                    self._allowance.note_reply(len(event.data))
                self._receiver.on_message(message, None)

    def _on_endpoint(self, target: str) -> None:
        if self._endpoint.done():
            return
        endpoint = urljoin(self._url, target)
        # Our headers hold credentials, which are for this origin alone.
        if urlsplit(endpoint)[:2] == urlsplit(self._url)[:2]:
            self._endpoint.set_result(endpoint)
        else:
            self._lost(f"named an endpoint at {http_client.origin(endpoint)}, which is not where its stream is")

    async def _post(self, message: Message) -> None:
        endpoint = await self._endpoint
        try:
            status, body = await http_client.post_notice(self._client, endpoint, {"content-type": JSON}, message)
        except RequestFailed as error:
            self._failed(message, str(error), sent=not isinstance(error, SendRefused))
        except httpx2.HTTPError as error:
            self._failed(message, http_client.describe_error(error), sent=not http_client.is_unsent(error))
        else:
            if status >= 400 and names_lost_session(body):
                self._gone = True
                self._receiver.on_expired(message.id if isinstance(message.id, int) else None)
            elif not 200 <= status < 300:
                self._failed(message, http_client.describe_status(status), sent=True)

    def _failed(self, message: Message, reason: str, *, sent: bool) -> None:
        if message.method is not UNSET and isinstance(message.id, int):
            self._receiver.on_failed(message.id, reason, sent=sent)

    def _lost(self, reason: str) -> None:
        if not self._endpoint.done():
            self._endpoint.set_exception(LinkError(reason))
        elif not self._gone:
            self._gone = True
            self._receiver.on_closed(reason)


async def open_sse(
    url: str, headers: Mapping[str, str], receiver: Receiver, limit: int, authorizer: Authorizer | None = None,
    cert: Certificate = None, allowance: Allowance | None = None,
) -> SseLink:  # fmt: skip
    """Connect to a server of 2024-11-05. `limit`: bytes of one message. Raises `LinkError` when there is none."""
    link = SseLink(url, headers, receiver, limit, authorizer, cert, allowance)
    await link.connect()
    return link
