"""One connection to one upstream in one era: handshake, requests in flight, and what comes unasked.

Above it stands `Upstream`, which decides which connection serves whom; below it a `Link`, which knows one transport.
A connection is used once: when its link is gone, so is it, and the upstream makes another.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from msgspec import Struct, field

from foretool.server.protocol import jsonrpc
from foretool.server.protocol import versions as protocol
from foretool.server.protocol.jsonrpc import UNSET, Id, Message, Raw
from foretool.server.transports.upstream.base import Link, LinkError
from foretool.storage.records import Era

HANDSHAKE_S: Final = 60.0
"""Longest wait for an upstream to answer its handshake; first starts download packages."""

PROBE_S: Final = 20.0
"""Longest wait for `server/discover`; legacy servers may stay silent (specification: stdio, compatibility)."""


log = logging.getLogger("foretool.connection")


class Lost(Struct, frozen=True):
    """A request that will get no reply."""

    reason: str
    sent: bool
    """It had left for the upstream, so it may have been carried out."""


Reply = Message | Lost


class Request(Struct, eq=False):
    """One request on its way to an upstream, and who waits for what comes of it."""

    method: str
    params: dict[str, Raw]
    reply: Callable[[Reply], None]
    notice: Callable[[Message], None] | None = None
    """Takes notifications that belong to it: progress (token already ours to replace) and logs."""
    poll: Callable[[], None] | None = None
    """Called when the upstream closes the request's stream to be polled for the rest."""
    owner: object = None
    """Whose request it is; questions of the upstream are only passed on when it is clear to whom."""
    exchange: object = None
    """The exchange with the client that it serves, for whoever made it."""
    build_meta: Callable[[Era], dict[str, Raw] | None] | None = None
    """Builds the `_meta` to send on a connection of the given era."""
    progress: bool = False
    """Send a progress token of ours in `_meta`."""
    headers: Mapping[str, str] | None = None
    timeout: float = 0.0
    """Seconds without reply or progress after which it is given up; 0 waits for ever."""
    id: int = 0
    sent: bool = False
    questions: int = 0
    """How many of the upstream's questions in its course are being answered."""
    resent: bool = False
    """It was sent on an earlier connection, which refused it unread."""
    deadline: float = 0.0
    """Monotonic seconds, set when it is sent."""

    def let_go(self) -> None:
        """It is over: what its callbacks hold on to points back at it, and would be garbage to collect."""
        self.reply, self.notice, self.poll, self.build_meta = _ignored, None, None, None


class Events(Protocol):
    """What a connection tells its upstream."""

    def on_notification(self, connection: Connection, message: Message) -> None:
        """A notification came that belongs to no request."""

    def on_request(self, message: Message, request: Request | None, answer: Callable[[Message], None]) -> None:
        """The upstream asks the client. `request`: in whose course, None when that cannot be told."""

    def on_invalid_line(self, line: bytes) -> None: ...

    def on_unhandled(self, connection: Connection, request: Request) -> None:
        """The upstream refused a request unread; it is to be sent again on the next connection."""

    def on_lost(self, connection: Connection, reason: str) -> None: ...


class HandshakeError(Exception):
    """The upstream refused or did not finish the handshake. `code` and `data`: of its JSON-RPC error, None without."""

    def __init__(self, reason: str, code: int | None = None, data: Any = None) -> None:
        super().__init__(reason)
        self.code = code
        self.data = data


class ServerInfo(Struct):
    """What the upstream said of itself in the handshake."""

    version: str = ""
    capabilities: dict[str, Any] = field(default_factory=dict)
    implementation: dict[str, Any] = field(default_factory=dict)
    """Its name and version as it states them."""
    instructions: str = ""


class Connection:
    """See the module. Create, `attach` a link, `greet`, then `send`."""

    def __init__(self, era: Era, events: Events) -> None:
        self.era: Era = era
        self.server_info = ServerInfo()
        self.ready = False
        self._events = events
        self._link: Link | None = None
        self._pending: dict[int, Request] = {}
        self._last_id = 0
        self._capabilities: dict[str, Any] = {}
        self._own_meta: dict[str, Raw] = {}
        self._gone = ""

    # -- what the upstream layer uses

    @property
    def pid(self) -> int | None:
        return self._link.pid if self._link else None

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet; a subscription is open for as long as the connection."""
        return sum(request.method != "subscriptions/listen" for request in self._pending.values())

    def stderr(self) -> tuple[str, ...]:
        return self._link.stderr() if self._link else ()

    def attach(self, link: Link) -> None:
        self._link = link

    async def handshake(self, capabilities: dict[str, Any]) -> None:
        """Carry out this era's handshake. Raises `HandshakeError` or `LinkError`."""
        self._capabilities = capabilities
        if self.era == "modern":
            await self._discover()
        else:
            await self._initialize()
        self.ready = True

    async def _initialize(self) -> None:
        self._own_meta = {}  # a modern probe may have set it before
        params = {
            "protocolVersion": protocol.LATEST_LEGACY,
            "capabilities": self._capabilities,
            "clientInfo": protocol.IDENTITY,
        }
        result = await self.ask("initialize", params, HANDSHAKE_S)
        version = result.get("protocolVersion")
        if version not in protocol.LEGACY_VERSIONS:
            raise HandshakeError(f"speaks protocol version {version!r}, which we do not")
        self._greeted(version, result, result.get("serverInfo"))
        self.notify("notifications/initialized")

    async def _discover(self) -> None:
        self._own_meta = {
            protocol.META_VERSION: jsonrpc.raw(protocol.LATEST_MODERN),
            protocol.META_CLIENT_INFO: protocol.IDENTITY_RAW,
            protocol.META_CAPABILITIES: jsonrpc.raw(self._capabilities),
        }
        try:
            result = await self.ask("server/discover", {}, PROBE_S)
        except HandshakeError as error:
            if error.code != jsonrpc.UNSUPPORTED_VERSION or not _names_ours(error.data):
                raise
            result = await self.ask("server/discover", {}, PROBE_S)
        versions = result.get("supportedVersions") or []
        if protocol.LATEST_MODERN not in versions:
            raise HandshakeError(f"supports only {versions}", jsonrpc.UNSUPPORTED_VERSION)
        info = (result.get("_meta") or {}).get(protocol.META_SERVER_INFO)
        self._greeted(protocol.LATEST_MODERN, result, info)

    def _greeted(self, version: str, result: dict[str, Any], info: object) -> None:
        capabilities, instructions = result.get("capabilities"), result.get("instructions")
        self.server_info = ServerInfo(
            version,
            capabilities if isinstance(capabilities, dict) else {},
            info if isinstance(info, dict) else {},
            instructions if isinstance(instructions, str) else "",
        )

    async def ask(self, method: str, params: dict[str, Any], patience: float) -> dict[str, Any]:
        """As `ask_raw`, decoded. Raises `HandshakeError` as well when the answer is no object."""
        value = jsonrpc.plain(await self.ask_raw(method, params, patience))
        if not isinstance(value, dict):
            raise HandshakeError(f"answered {method} with no object")
        return value

    async def ask_raw(self, method: str, params: dict[str, Any], patience: float) -> Raw:
        """The result of a request of our own.

        Raises `HandshakeError` for an error or silence after `patience` seconds, `LinkError` when the link is lost.
        """
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def settle(reply: Reply) -> None:
            if not future.done():
                future.set_result(reply)

        request = self.tell(method, params, settle)
        try:
            # Not `wait_for`: on Python 3.11 it swallows a cancellation that comes with the reply, as at the end.
            async with asyncio.timeout(patience):
                reply = await future
        except TimeoutError:
            self.cancel(request, "no answer in time")
            raise HandshakeError(f"did not answer {method} within {patience:g} s") from None
        if isinstance(reply, Lost):
            raise LinkError(reply.reason)
        if reply.error is not UNSET:
            code, reason = jsonrpc.error_of(reply.error)
            raise HandshakeError(f"answered {method} with error {code}: {reason}", code, _data_of(reply.error))
        assert isinstance(reply.result, Raw)
        return reply.result

    def tell(self, method: str, params: dict[str, Any], reply: Callable[[Reply], None] | None = None) -> Request:
        """A request of our own whose reply, if anybody, `reply` takes."""
        request = Request(method, {key: jsonrpc.raw(value) for key, value in params.items()}, reply or _ignored)
        own_meta = self._own_meta
        request.build_meta = lambda era: own_meta
        request.notice = partial(self._events.on_notification, self)
        self.send(request)
        return request

    def send(self, request: Request) -> None:
        """Give a request an id and hand it to the link; its reply, or `Lost`, comes exactly once."""
        if self._link is None or self._gone:
            request.reply(Lost(self._gone or "not connected", sent=False))
            return
        self._last_id += 1
        request.id = self._last_id
        self._pending[request.id] = request
        request.sent = True
        request.deadline = time.monotonic() + request.timeout if request.timeout else 0.0
        meta = (request.build_meta(self.era) if request.build_meta is not None else None) or {}
        if request.progress:
            meta = {**meta, "progressToken": Raw(b"%d" % request.id)}
        if meta:
            request.params["_meta"] = jsonrpc.raw(meta)
        else:
            request.params.pop("_meta", None)  # an earlier connection of another era may have set it
        params = Raw(jsonrpc.encode(request.params)) if request.params else UNSET
        self._link.send(Message(id=request.id, method=request.method, params=params), request.headers)

    def cancel(self, request: Request, reason: str) -> None:
        """Drop a request; its reply is no longer wanted."""
        # Each connection counts its own ids: another one's request may have the same.
        if self._pending.get(request.id) is not request or self._link is None:
            return
        del self._pending[request.id]
        if not self._link.abandon(request.id) and request.method not in ("initialize", "server/discover"):
            params = {"requestId": request.id, "reason": reason}
            self.notify("notifications/cancelled", params)

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        if self._link is not None and not self._gone:
            self._link.send(Message(method=method, params=UNSET if params is None else jsonrpc.raw(params)))

    def expire(self, now: float) -> list[Request]:
        """Drop the requests whose deadline has passed and return them, to be told."""
        late = [request for request in self._pending.values() if request.deadline and request.deadline < now]
        for request in late:
            self.cancel(request, "timed out")
        return late

    def drop(self, reason: str) -> None:
        """Every request in flight is lost, at once."""
        self._gone = self._gone or reason
        self.ready = False
        pending, self._pending = self._pending, {}
        for request in pending.values():
            request.reply(Lost(reason, sent=request.sent))

    async def close(self) -> None:
        self.drop("the upstream was stopped")
        if self._link is not None:
            await self._link.close()

    # -- Receiver: what the link brings

    def on_message(self, message: Message, request: int | None) -> None:
        try:
            self._on_message(message, request)
        except Exception:  # the boundary of a message: one that we cannot deal with must not end the connection
            log.exception("Failed")

    def _on_message(self, message: Message, request: int | None) -> None:
        if message.method is UNSET:
            self._on_reply(message)
        elif message.id is UNSET:
            self._on_notification(message, request)
        else:
            self._on_request(message, request)

    def on_invalid_line(self, line: bytes) -> None:
        self._events.on_invalid_line(line)

    def on_failed(self, request: int, reason: str, *, sent: bool) -> None:
        if (waiting := self._pending.pop(request, None)) is not None:
            waiting.reply(Lost(reason, sent))

    def on_expired(self, request: int) -> None:
        # The upstream has not handled it, so it may be sent again once the next connection stands.
        if (waiting := self._pending.pop(request, None)) is not None:
            waiting.sent = False
            if waiting.resent:
                waiting.reply(Lost("its session expired twice", sent=False))
            else:
                waiting.resent = True
                self._events.on_unhandled(self, waiting)
        self.on_closed("its session had expired")

    def on_poll(self, request: int, retry_ms: int) -> None:
        """The upstream ended the stream of a request and wants to be asked again for the rest; so may our client."""
        if (waiting := self._pending.get(request)) is not None and waiting.poll is not None:
            waiting.poll()

    def on_closed(self, reason: str) -> None:
        if not self._gone:
            self.drop(reason)
            self._events.on_lost(self, reason)

    def _on_reply(self, message: Message) -> None:
        request = self._pending.pop(message.id, None) if isinstance(message.id, int) else None
        if request is None:
            return  # cancelled before, or never asked
        reply = request.reply
        request.let_go()
        reply(message)

    def _on_notification(self, message: Message, request: int | None) -> None:
        if message.method == "notifications/progress":
            request = self._progress_token(message)
        elif message.method == "notifications/cancelled":
            self._on_cancelled(message)
            return
        elif message.method == "notifications/message" and request is None:
            asker = self._only_asker()
            request = asker.id if asker is not None else None
        waiting = self._pending.get(request) if request is not None else None
        if waiting is not None and waiting.notice is not None:
            if waiting.timeout and not waiting.questions:
                waiting.deadline = time.monotonic() + waiting.timeout
            waiting.notice(message)
        elif message.method != "notifications/progress":
            self._events.on_notification(self, message)

    def _on_cancelled(self, message: Message) -> None:
        """The upstream ends a subscription of ours (modern era), or takes back a question (legacy era)."""
        try:
            target = jsonrpc.plain(jsonrpc.fields(message.params)["requestId"])
        except (KeyError, ValueError):
            return
        if self.era == "legacy":
            self._events.on_notification(self, message)
            return
        waiting = self._pending.get(target) if isinstance(target, int) else None
        if waiting is not None and waiting.method == "subscriptions/listen":
            self.on_failed(waiting.id, "the upstream ended the subscription", sent=True)

    def _progress_token(self, message: Message) -> int | None:
        # Our progress tokens are the request's own id on this connection.
        try:
            token = jsonrpc.plain(jsonrpc.fields(message.params)["progressToken"])
        except (KeyError, ValueError):
            return None
        return token if isinstance(token, int) else None

    def _on_request(self, message: Message, request: int | None) -> None:
        if message.method == "ping":
            self._answer(Message(id=message.id, result=jsonrpc.EMPTY))
            return
        waiting = self._pending.get(request) if request is not None else self._only_asker()
        self._events.on_request(message, waiting, self._answer)

    def _only_asker(self) -> Request | None:
        """The request that an unattributed question belongs to: clear when all that may ask have one owner."""
        askers = self.askers()
        owners = {id(request.owner) for request in askers}
        return askers[-1] if len(owners) == 1 else None

    def askers(self) -> list[Request]:
        """Requests in flight in whose course the upstream may speak."""
        return [request for request in self._pending.values() if request.method in protocol.MAY_ASK]

    def _answer(self, message: Message) -> None:
        if self._link is not None and not self._gone:
            self._link.send(message)


def _data_of(error: Raw) -> Any:
    try:
        return jsonrpc.plain(jsonrpc.fields(error).get("data", Raw(b"null")))
    except ValueError:
        return None


def _names_ours(data: Any) -> bool:
    """Whether an UnsupportedProtocolVersionError lists our revision among those it supports: then it is asked again
    (specification: basic, versioning)."""
    supported = data.get("supported") if isinstance(data, dict) else None
    return isinstance(supported, list) and protocol.LATEST_MODERN in supported


def _ignored(reply: Reply) -> None:
    """The reply to what we said in passing."""


def answer_error(id: Id | None, code: int, reason: str) -> Message:
    """An error reply to a question of an upstream."""
    return Message(id=id, error=jsonrpc.error_object(code, reason))
