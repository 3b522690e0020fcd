"""Upstreams over streamable HTTP, both eras: a POST for each message, answered with JSON or with a stream of events.

What comes on the stream of a POST belongs to its request and is delivered with it. In the legacy era there is a
session, one more stream for what belongs to no request, and streams that break are resumed. In the modern era each
request stands alone, and closing its stream cancels it.

There is no connection to lose, so a failure concerns one request. The link is reported closed only when the session is
over, or when the server cannot be reached and no other request is being answered. Then the upstream restarts, with
pauses, instead of failing call by call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

import httpx2
from msgspec import UNSET

from foretool.server.protocol import headers as http_headers
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.headers import EVENTS, JSON, media_type
from foretool.server.protocol.jsonrpc import Message
from foretool.server.transports.allowance import REPLY_S, Allowance, Answers, metered
from foretool.server.transports.tasks import Tasks
from foretool.server.transports.upstream import http_client
from foretool.server.transports.upstream.base import Authorizer, Link, LinkError, Receiver
from foretool.server.transports.upstream.http_client import (
    LOST,
    AuthorizedClient,
    Certificate,
    RequestFailed,
    SendRefused,
    SessionLost,
    classify_refusal,
    error_in,
    names_lost_session,
)
from foretool.server.transports.upstream.http_messages import ERROR_BYTES, HttpSession, MessageReader
from foretool.server.transports.upstream.sse import EventParser, SseLink, TooLarge, open_sse
from foretool.storage.records import Era

_RETRY_S: Final = 1.0
"""Pause before a stream is resumed, if the server names none."""
_RETRY_LEAST_S, _RETRY_MOST_S = 0.05, 60.0
_RESUMES: Final = 5
"""Attempts in a row to resume a stream that bring nothing, after which it is given up."""
_GOODBYE_S: Final = 2.0
_LISTEN_S: Final = 0.1
"""Longest wait of the first request for the answer to our GET; some servers send nothing before there is an event."""

# Statuses by which a server of 2024-11-05 says that it takes no POST there (specification: backward compatibility).
_NOT_STREAMABLE: Final = frozenset({400, 404, 405})

# Legacy servers refuse the modern probe with any 4xx but these, which are about access or load.
_NOT_A_PROBE_ANSWER: Final = frozenset({401, 403, 407, 408, 429})

log = logging.getLogger(__name__)


class HttpLink(Link):
    """A link to one server. Nothing is sent at first, so it can be made whether or not the server is there.

    `headers` go with every request. `limit`: bytes of one message. `fall_back`: if the server refuses `initialize` on
    streamable HTTP, try the transport of 2024-11-05 at the same URL. `allowance`: of the server, over all its links.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], era: Era, receiver: Receiver, limit: int, *,
        fall_back: bool = False, authorizer: Authorizer | None = None, cert: Certificate = None,
        allowance: Allowance | None = None,
    ) -> None:  # fmt: skip
        self._authorizer, self._cert = authorizer, cert
        self._url = url
        self._given_headers = headers
        self._era = era
        self._receiver = receiver
        self._limit = limit
        self._fall_back = fall_back and era == "legacy"
        self._tasks = Tasks(f"link to {http_client.origin(url)}")
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._answering = 0
        """Requests whose response has begun: a sign that the server lives."""
        self._session = HttpSession(era)
        self._ready = asyncio.Event()
        """Cleared while `notifications/initialized` is on its way: nothing may overtake it."""
        self._ready.set()
        self._listening = asyncio.Event()
        """Set when the server has answered our GET in any way."""
        self._sse_link: SseLink | None = None
        self._gone = ""
        self._allowance = allowance = allowance or Allowance()
        self._client = AuthorizedClient(url, headers, authorizer, cert, allowance)
        self._answers = Answers()
        self._reader = MessageReader(receiver, limit, self._session, allowance, self._answers)

    # -- Link

    def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if self._sse_link is not None:
            self._sse_link.send(message)
        elif message.method is not UNSET and isinstance(message.id, int):
            request = message.id
            self._allowance.note_request()
            begin = partial(self._request, request, message, dict(headers or {}))
            task = None if self._gone else self._tasks.spawn(metered(begin, self._allowance, REPLY_S))
            if task is None:
                self._receiver.on_failed(request, self._gone or "the link is closed", sent=False)
            else:
                self._requests[request] = task
                task.add_done_callback(lambda _: self._forget(request))
        elif self._era == "legacy" or message.method is not UNSET:
            if message.method == "notifications/initialized":
                self._ready.clear()
            if message.method is UNSET:
                self._tasks.spawn(metered(partial(self._answers.send, partial(self._notify, message)), self._allowance))
            else:
                self._tasks.spawn(metered(partial(self._notify, message), self._allowance, REPLY_S))

    def _forget(self, request: int) -> None:
        self._requests.pop(request, None)
        self._reader.doubted.pop(request, None)

    def abandon(self, request: int) -> bool:
        # In the legacy era the notification that follows is the cancellation, and nobody reads this stream any more.
        if (task := self._requests.pop(request, None)) is not None:
            task.cancel()
        return self._era == "modern"

    async def close(self) -> None:
        """End the session with DELETE, as the specification asks."""
        await self._tasks.close()
        headers, had_session = self._session.headers(), self._session.id is not None
        self._session.id = None
        try:
            if had_session and not self._gone:
                await http_client.end_session(self._client, self._url, headers, _GOODBYE_S)
        except (httpx2.HTTPError, RequestFailed) as error:
            log.debug("ending the session at %s failed: %s", http_client.origin(self._url), type(error).__name__)
        finally:
            await self._client.aclose()
        if self._sse_link is not None:
            await self._sse_link.close()

    # -- requests

    async def _request(self, request: int, message: Message, extra: dict[str, str]) -> None:
        """Carry out one request; it ends in a reply by `on_message`, in `on_failed` or in `on_expired`."""
        try:
            if message.method != "initialize":
                await self._ready.wait()
            await self._ask(request, message, extra)
        except SessionLost:
            self._lose_session(request)
        except RequestFailed as error:
            self._receiver.on_failed(request, str(error), sent=not isinstance(error, SendRefused))
        except TooLarge:
            self._receiver.on_too_large(request, self._limit)
        except httpx2.HTTPError as error:
            is_unsent, at = http_client.is_unsent(error), http_client.origin(self._url)
            reason = f"broke off at {at} before its reply ({http_client.describe_error(error)})"
            self._receiver.on_failed(request, self._unreachable(error) if is_unsent else reason, sent=not is_unsent)
            self._note_unreachable(error)
        except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
            self._receiver.on_failed(request, f"cannot be asked: {http_client.describe_error(error)}", sent=False)

    def _unreachable(self, error: httpx2.HTTPError) -> str:
        return f"cannot be reached at {http_client.origin(self._url)} ({http_client.describe_error(error)})"

    def _note_unreachable(self, error: httpx2.HTTPError) -> None:
        if http_client.is_unsent(error) and not self._answering:
            self._lost(self._unreachable(error))

    def _lose_session(self, request: int | None = None) -> None:
        self._gone = self._gone or LOST
        self._receiver.on_expired(request)

    def _lost(self, reason: str) -> None:
        if not self._gone:
            self._gone = reason
            self._receiver.on_closed(reason)

    async def _ask(self, request: int, message: Message, extra: dict[str, str]) -> None:
        events = EventParser(self._limit)
        headers, content = self._session.headers(message) | extra, jsonrpc.encode(message)
        async with self._client.stream("POST", self._url, headers=headers, content=content) as response:
            self._answering += 1
            try:
                answered = await self._on_response(response, request, message, events)
            finally:
                self._answering -= 1
        if not answered:
            await self._resume(request, message, events)
        if (doubted := self._reader.doubted.pop(request, None)) is not None:
            await self._check_session()
            self._receiver.on_message(doubted, request)

    async def _check_session(self) -> None:
        """Ask with a ping, which changes nothing, whether the server still knows our session. Raises `SessionLost`."""
        ping = Message(id="foretool-session", method="ping")
        try:
            status, body = await http_client.post_notice(self._client, self._url, self._session.headers(ping), ping)
        except SessionLost:
            raise
        except (RequestFailed, httpx2.HTTPError):
            return  # this says nothing about the session
        if status == 404 or names_lost_session(body):
            raise SessionLost(LOST)

    async def _on_response(
        self, response: httpx2.Response, request: int, message: Message, events: EventParser
    ) -> bool:
        """Deliver the answer to a POST. Returns False when its stream ended before the reply."""
        if not response.is_success:
            await self._on_refused(request, message, response)
            return True
        if message.method == "initialize":
            self._session.begin(response.headers.get(http_headers.SESSION))
        kind = _kind(response)
        if kind == EVENTS:
            return await self._reader.read(response, events, request, message)
        body = await self._reader.read_whole(response)
        # Some servers name no type or a wrong one; a body that is a reply counts all the same.
        if kind != JSON and not body.lstrip().startswith((b"{", b"[{")):
            raise RequestFailed(f"answered HTTP {response.status_code} with {kind or 'no content type'} and no reply")
        if not self._reader.deliver(body, request, message):
            raise RequestFailed("answered with something that is not a reply to the request")
        return True

    async def _resume(self, request: int, message: Message, events: EventParser) -> None:
        """Ask for the rest of a stream that ended before its reply; the server may want to be polled for it."""
        attempts = 0
        while self._era == "legacy" and events.last_id and attempts < _RESUMES:
            if attempts == 0:
                self._receiver.on_poll(request, events.retry_ms or int(_RETRY_S * 1000))
            await asyncio.sleep(_pause(events, attempts))
            seen = events.seen
            try:
                async with self._open_stream(events) as response:
                    self._listening.set()
                    if response.status_code != 200 or _kind(response) != EVENTS:
                        raise RequestFailed(f"broke off its answer and cannot resume it (HTTP {response.status_code})")
                    if await self._reader.read(response, events, request, message):
                        return
            except httpx2.HTTPError as error:
                log.debug("resuming at %s failed: %s", http_client.origin(self._url), type(error).__name__)
            attempts = 0 if events.seen > seen else attempts + 1
        raise RequestFailed("ended its answer before the reply")

    async def _on_refused(self, request: int, message: Message, response: httpx2.Response) -> None:
        status, body = response.status_code, bytearray()
        with contextlib.suppress(TooLarge):  # the status says enough
            body += await self._reader.read_whole(response, min(self._limit, ERROR_BYTES))
        error = error_in(body)
        # A refusal with a challenge is about the token, whatever its text says of sessions.
        is_of_session = self._session.id is not None and "www-authenticate" not in response.headers
        if is_of_session and (verdict := classify_refusal(status, body, request)) != "kept":
            if verdict == "lost":
                raise SessionLost(LOST)
            await self._check_session()
        if error is not None and status not in (401, 403):
            self._receiver.on_message(Message(id=request, error=error.error), request)
            return
        if message.method == "server/discover" and 400 <= status < 500 and status not in _NOT_A_PROBE_ANSWER:
            unknown = jsonrpc.error_object(jsonrpc.METHOD_NOT_FOUND, f"HTTP {status} and no JSON-RPC error")
            self._receiver.on_message(Message(id=request, error=unknown), request)
            return
        reason = http_client.describe_status(status)
        if message.method != "initialize" or status not in _NOT_STREAMABLE or not self._fall_back:
            raise RequestFailed(reason)
        # If the server speaks the transport of 2024-11-05 at the same URL, the link keeps to it.
        try:
            self._sse_link = await open_sse(
                self._url,
                self._given_headers,
                self._receiver,
                self._limit,
                self._authorizer,
                self._cert,
                self._allowance,
            )
        except LinkError:
            raise RequestFailed(reason) from None
        self._sse_link.send(message)

    # -- messages without a reply

    async def _notify(self, message: Message) -> None:
        first = message.method == "notifications/initialized"
        try:
            if not first:
                await self._ready.wait()
            status, body = await http_client.post_notice(
                self._client, self._url, self._session.headers(message), message
            )
        except SessionLost:
            self._lose_session()
        except RequestFailed as error:
            log.debug("%s did not reach %s: %s", message.method or "a reply", http_client.origin(self._url), error)
        except httpx2.HTTPError as error:
            log.debug("%s did not reach %s", message.method or "a reply", http_client.origin(self._url))
            self._note_unreachable(error)
        else:
            if self._session.id is not None and classify_refusal(status, body) == "lost":
                self._lose_session()
        finally:
            if first:
                # Before the first request, since its questions may come on the stream of what belongs to no request.
                self._tasks.spawn(metered(self._listen, self._allowance))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LISTEN_S):
                        await self._listening.wait()
                self._ready.set()

    # -- the stream of what belongs to no request

    async def _listen(self) -> None:
        """Read the standalone stream while the server offers it, and resume it when it ends."""
        events, empty, opened = EventParser(self._limit), 0, False
        while not self._gone:
            seen = events.seen
            try:
                async with self._open_stream(events) as response:
                    if response.status_code == 200 and _kind(response) == EVENTS:
                        opened = True
                        await self._reader.read(response, events, None, None)
                    else:
                        status, body = response.status_code, await http_client.skip_body(response)
                        # A server that offers no such stream may say whatever it likes to the first request for it.
                        if opened and self._session.id is not None and classify_refusal(status, body) == "lost":
                            self._lose_session()
                        if status < 500 and status != 429:
                            return
            except SessionLost:
                self._lose_session()
            except TooLarge:
                self._receiver.on_invalid_line(b"(an event over the size limit)")
            except RequestFailed as error:
                log.debug("the stream of %s cannot be read: %s", http_client.origin(self._url), error)
                return
            except httpx2.HTTPError as error:
                if empty >= _RESUMES:
                    self._note_unreachable(error)
            empty = 0 if events.seen > seen else empty + 1
            await asyncio.sleep(_pause(events, empty))

    # -- HTTP

    def _open_stream(self, events: EventParser) -> AbstractAsyncContextManager[httpx2.Response]:
        """GET the standalone stream, or the rest of a stream that broke."""
        headers = self._session.headers() | {"accept": EVENTS}
        if events.last_id:
            headers["last-event-id"] = events.last_id
        return self._client.stream("GET", self._url, headers=headers)


def _kind(response: httpx2.Response) -> str:
    return media_type(response.headers.get("content-type"))


def _pause(events: EventParser, attempts: int) -> float:
    asked = _RETRY_S if events.retry_ms is None else events.retry_ms / 1000
    grown = 0.0 if attempts == 0 else _RETRY_S * 2.0 ** (attempts - 1)
    return min(max(asked, grown, _RETRY_LEAST_S), _RETRY_MOST_S)
