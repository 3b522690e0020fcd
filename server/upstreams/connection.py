"""One connection to one upstream in one era: the handshake, the requests in flight, and what the upstream says itself.

Above it, `Upstream` decides which connection serves whom; below it, a `Link` knows one transport. A connection is used
once: when its link is gone, the upstream makes another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from msgspec import Struct, field

from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import UNSET, Id, Message, Raw, UnsetType
from foretool.server.transports.upstream.base import Link, LinkError
from foretool.server.transports.upstream.loading import LOOK_S
from foretool.server.trust.text import clean
from foretool.server.upstreams.notice_limit import MOST_SIZE, NoticeLimit
from foretool.server.upstreams.question_clock import QUESTION_S, QuestionClock
from foretool.storage.records import Era

HANDSHAKE_S: Final = 60.0
"""Longest wait for the answer to `initialize`; a first start downloads packages."""
LONG_HANDSHAKE_S: Final = 300.0
"""Longest wait after a start that failed: a server that needs longer than `HANDSHAKE_S` each time would never be there.
Nobody waits for it meanwhile (`registry.PATIENCE_S`)."""

_OUTPUT_S: Final = 10.0
"""How long a server may take for its handshake before we look at what else it has written to its output."""
_HOPELESS: Final = re.compile(r'(?im)^\s*usage:|"jsonrpc"')
"""What a server writes whose answer will not come: how it is to be started, or a message that cannot be read."""

NOT_MCP: Final = ", which is not MCP"
IN_PLACE: Final = ", in place of an answer"
NO_REQUEST: Final = ", which no request has"
UNREADABLE: Final = "its answer is not valid JSON-RPC, or is cut off"
"""Parts of reasons, by which `failures` finds the advice."""

_PROBE_S: Final = 20.0
"""Longest wait for the answer to `server/discover`; legacy servers may stay silent (specification: stdio)."""

_LIVING_S: Final = 6 * 3600.0
"""How long a request may go on that reports progress (specification: basic, lifecycle, timeouts)."""
_LEAVE_S: Final = 5.0
"""Longest wait for replies when a session is lost: most requests in flight are refused at once, and sent again."""
_GIVEN_UP_S: Final = 30.0
"""How long what a server says without a request may belong to one that was given up."""
_MOST_GIVEN_UP: Final = 100
"""Requests of a connection that are remembered for that."""
_MOST_TASK: Final = 64 * 1024
"""Bytes of what a server says of a task that goes on."""
MOST_INSTRUCTIONS: Final = 64 * 1024
"""Characters of a server's instructions; the rest is cut off."""
_MOST_ID: Final = 20
"""Characters of an id of ours, and of one that is shown."""
_MOST_NOISE: Final = 120
"""Characters of a text on its output that are shown."""
MOST_ABOUT_ITSELF: Final = 64 * 1024
"""Bytes of a server's capabilities, and of its name, version and icons. What is longer is left out."""

log = logging.getLogger("foretool.connection")


class Lost(Struct, frozen=True):
    """Stands in place of a reply that will not come, with the reason."""

    reason: str
    sent: bool
    """The request had left for the upstream, so it may have been carried out."""
    is_unread: bool = False
    """There is a reply, and it is too large or no message: the connection is as good as before."""


Reply = Message | Lost


class Party(Struct, frozen=True):
    """Clients that may learn of each other's calls: those with one credential and one profile."""

    principal: str
    profile: str
    window: int = 0
    """Number of the window that is a party of its own; 0 where the client is none."""


class Request(Struct, eq=False):
    """One request to an upstream, and the callbacks for what comes of it."""

    method: str
    params: dict[str, Raw]
    reply: Callable[[Reply], None]
    notice: Callable[[Message], None] | None = None
    """Takes notifications that belong to the request: logs, and progress with our token."""
    wants: Callable[[str], bool] | None = None
    """Tells whether a notification of a method is wanted, which else counts towards no limit; None: each is."""
    poll: Callable[[], None] | None = None
    """Called when the upstream ends the stream of the request to be polled for the rest."""
    owner: object = None
    """Who sent it; a question of the upstream is passed on only if all requests it may belong to have one owner."""
    party: Party | None = None
    """Who sent it, as far as they may be told of each other's calls; None for requests of our own."""
    exchange: object = None
    """The exchange with a client that the request serves, for whoever made it."""
    build_meta: Callable[[Era], dict[str, Raw] | None] | None = None
    """Builds the `_meta` to send on a connection of the given era."""
    progress: bool = False
    """Send a progress token of ours in `_meta`."""
    headers: Mapping[str, str] | None = None
    timeout: float = 0.0
    """Seconds without reply or progress after which the request is given up; 0 means no limit."""
    id: int = 0
    sent: bool = False
    sent_at: float = 0.0
    """Monotonic seconds."""
    questions: int = 0
    """How many questions that the upstream asked because of this request are being answered."""
    asked: int = 0
    """How many questions the upstream has asked because of this request."""
    resent: bool = False
    """The request was sent on an earlier connection, which refused it unread."""
    deadline: float = 0.0
    """Monotonic seconds; set when the request is sent or begins to wait. 0 means none."""

    @property
    def lateness(self) -> str:
        """The reason for giving it up, once its deadline has passed."""
        if self.questions:
            return f"its user did not do what it asked for within {QUESTION_S:g} s"
        if not self.sent or self.deadline <= self.sent_at + self.timeout:
            return f"no answer within {self.timeout:g} s"
        if self.deadline >= self.sent_at + _LIVING_S:
            return f"it went on reporting progress, without an answer within {_LIVING_S / 3600:g} hours"
        return f"no answer, and no progress within {self.timeout:g} s"

    def drop_callbacks(self) -> None:
        """Drop the callbacks, to break reference cycles that the garbage collector would have to find."""
        self.reply, self.notice, self.wants, self.poll, self.build_meta = ignore_reply, None, None, None, None


def postpone(requests: Iterable[Request], now: float, seconds: float) -> None:
    """Give requests so many seconds more, as if they had been sent later; those that were sent within the last second
    have come since."""
    for request in requests if seconds else ():
        if request.sent_at < now - 1.0:
            request.sent_at += seconds
            request.deadline += seconds if request.deadline else 0.0


class ConnectionEvents(Protocol):
    """Takes what a connection tells its upstream."""

    def on_notification(self, connection: Connection, message: Message) -> None:
        """A notification came that belongs to no request."""

    def on_request(self, message: Message, request: Request | None, answer: Callable[[Message], None]) -> None:
        """The upstream asks the client. `request`: to which the question belongs, None when that cannot be told."""

    def on_invalid_line(self, line: bytes) -> None:
        """The upstream sent something that is not a JSON-RPC message."""

    def on_unhandled(self, connection: Connection, request: Request) -> None:
        """The upstream refused a request unread; it is to be sent again on the next connection."""

    def on_lost(self, connection: Connection, reason: str) -> None:
        """The connection serves no more requests. `reason`: what is wrong; "" where a session has ended."""


class HandshakeError(Exception):
    """The upstream refused a request of ours or did not answer. `code`, `data`: of its JSON-RPC error, else None."""

    def __init__(self, reason: str, code: int | None = None, data: Any = None) -> None:
        super().__init__(reason)
        self.code = code
        self.data = data


class ServerInfo(Struct):
    """What the upstream says of itself in the handshake."""

    version: str = ""
    capabilities: dict[str, Any] = field(default_factory=dict)
    implementation: dict[str, Any] = field(default_factory=dict)
    """Its `Implementation`: name, version and more."""
    instructions: str = ""


class _Askers:
    """The requests during which an upstream may ask or log. A message that names no request may belong to any of them:
    to those in flight, and to those that were given up. Their server may not have read that yet, or work on regardless.
    Few requests let a server ask; whatever a client has sent may be what a log entry tells of.
    """

    def __init__(self, pending: Mapping[int, Request]) -> None:
        """`pending`: the requests in flight, by id."""
        self._pending = pending
        self._given_up: dict[int, tuple[Request, float]] = {}
        """By id, when each was given up, in monotonic seconds; the oldest first."""

    def give_up(self, request: Request) -> None:
        """Remember a request that is no longer in flight and has no answer."""
        if len(self._given_up) >= _MOST_GIVEN_UP:
            # The oldest of the same owner, so that nobody can have another's forgotten.
            own = (ident for ident, (each, _) in self._given_up.items() if each.owner is request.owner)
            del self._given_up[next(own, next(iter(self._given_up)))]
        kept = Request(
            request.method, {}, ignore_reply, owner=request.owner, party=request.party, exchange=request.exchange,
            id=request.id,
        )  # fmt: skip
        self._given_up[request.id] = (kept, time.monotonic())

    def doubt_s(self) -> float:
        """Return for how long a question may yet be that of a request that was given up, in seconds."""
        given_up = [at for request, at in self._given_up.values() if request.method in versions.MAY_ASK]
        return max(_GIVEN_UP_S - (time.monotonic() - max(given_up)), 0.0) if given_up else 0.0

    def discard(self, ident: int) -> None:
        """Forget a request that was given up: its answer has come."""
        self._given_up.pop(ident, None)

    def asking(self) -> list[Request]:
        """Return those during which it may ask."""
        return [request for request in self.all() if request.method in versions.MAY_ASK]

    def logging(self) -> list[Request]:
        """Return those that a log entry may tell of."""
        return [each for each in self.all() if each.party is not None or each.method in versions.MAY_ASK]

    def only(self, requests: Sequence[Request]) -> Request | None:
        """Return the request in flight to which a message belongs, if all that it may belong to have one owner."""
        owners = {id(request.owner) for request in requests}
        return requests[-1] if len(owners) == 1 and requests[-1].id in self._pending else None

    def all(self) -> list[Request]:
        """Return those that were given up in the last `_GIVEN_UP_S`, then those in flight."""
        if self._given_up:
            since = time.monotonic() - _GIVEN_UP_S
            self._given_up = {ident: kept for ident, kept in self._given_up.items() if kept[1] >= since}
        return [*(request for request, _ in self._given_up.values()), *self._pending.values()]


class Connection:
    """A connection in one era. Create it, set its `link`, do the `handshake`, then `send`."""

    def __init__(self, era: Era, events: ConnectionEvents) -> None:
        self.era: Era = era
        self.server_info = ServerInfo()
        self.declared: dict[str, Any] = {}
        """The capabilities of clients that the server was told of."""
        self.ready = False
        self._events = events
        self.link: Link | None = None
        self._pending: dict[int, Request] = {}
        self._askers = _Askers(self._pending)
        self.parties: set[Party] = set()
        """Who has sent requests on it: what the upstream says unasked may be about any of them."""
        self._last_id = 0
        self._own_meta: dict[str, Raw] = {}
        self._gone = ""
        self._is_leaving = False
        """Its session is lost: replies to what was sent may still come, and nothing more is sent."""
        self._notices = NoticeLimit()
        self._question_clock = QuestionClock()
        self._has_answered = False
        """A reply has come that has the id of its request."""

    # -- for the upstream

    @property
    def in_flight(self) -> int:
        """How many requests are not answered yet, without subscriptions, which stay open as long as the connection."""
        return sum(request.method != "subscriptions/listen" for request in self._pending.values())

    @property
    def noise(self) -> str:
        """What the upstream wrote in place of messages, in words; "" if it did not."""
        noise = self.link.noise() if self.link is not None else ""
        return f"; it {_noise_text(noise)}" if noise.strip() else ""

    async def handshake(self, capabilities: dict[str, Any], patience: float = HANDSHAKE_S) -> None:
        """Do the handshake of this era; a server of the legacy era has `patience` seconds for its answer. Raises
        `HandshakeError` or `LinkError`."""
        self.declared = capabilities
        self._own_meta = (
            _own_meta(capabilities) if self.era == "modern" else {}
        )  # a modern probe may have set it before
        look = asyncio.get_running_loop().call_later(_OUTPUT_S, self._look_at_output)
        try:
            self.server_info = await (
                _discover(self) if self.era == "modern" else _initialize(self, capabilities, patience)
            )
        finally:
            look.cancel()
        self.ready = True

    def _look_at_output(self) -> None:
        """Give the handshake up if what the server writes shows that no answer will come."""
        if self.link is not None and not self.link.is_loading and _HOPELESS.search(noise := self.link.noise()):
            self.on_closed(f"{_noise_text(noise)}{IN_PLACE}")

    async def ask(self, method: str, params: dict[str, Any], patience: float) -> dict[str, Any]:
        """As `ask_raw`, decoded. Raises `HandshakeError` also when the result is not an object."""
        result = await self.ask_raw(method, params, patience)
        with contextlib.suppress(ValueError):  # JSON may hold numbers with more digits than Python reads
            if (value := jsonrpc.plain_object(result)) is not None:
                return value
        raise HandshakeError(f"answered {method} with something that is not an object, or that cannot be read")

    async def ask_raw(self, method: str, params: dict[str, Any], patience: float) -> Raw:
        """Send a request of our own and wait for its result. Raises `HandshakeError` for an error reply or `patience`
        seconds of silence, `LinkError` when the link is lost. Time in which a launcher loads does not count."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def settle(reply: Reply) -> None:
            if not future.done():
                future.set_result(reply)

        request = self.tell(method, params, settle)
        # Not `wait_for`: on Python 3.11 it swallows a cancellation that comes together with the reply.
        await asyncio.wait((future,), timeout=patience)
        while not future.done() and self.link is not None and self.link.is_loading:
            await asyncio.wait((future,), timeout=LOOK_S)
        if not future.done():
            self.cancel(request, "no answer in time")
            raise HandshakeError(f"did not answer {method} within {patience:g} s{self.noise}")
        reply = future.result()
        if isinstance(reply, Lost):
            raise LinkError(reply.reason)
        if reply.error is not UNSET:
            code, reason = jsonrpc.error_of(reply.error)
            raise HandshakeError(f"answered {method} with error {code}: {reason}", code, _member(reply.error, "data"))
        assert isinstance(reply.result, Raw)
        return reply.result

    def tell(self, method: str, params: dict[str, Any], reply: Callable[[Reply], None] | None = None) -> Request:
        """Send a request of our own without waiting; `reply` takes its reply."""
        request = Request(method, {key: jsonrpc.raw(value) for key, value in params.items()}, reply or ignore_reply)
        own_meta = self._own_meta
        request.build_meta = lambda era: own_meta
        request.notice = partial(self._events.on_notification, self)
        self.send(request)
        return request

    def send(self, request: Request) -> None:
        """Give a request an id and hand it to the link; its reply, or `Lost`, comes exactly once."""
        if self.link is None or self._gone:
            request.reply(Lost(self._gone or "not connected", sent=False))
            return
        self._last_id += 1
        request.id = self._last_id
        self._pending[request.id] = request
        if request.party is not None:
            self.parties.add(request.party)
        request.sent, request.sent_at = True, time.monotonic()
        request.deadline = request.sent_at + request.timeout if request.timeout else 0.0
        meta = (request.build_meta(self.era) if request.build_meta is not None else None) or {}
        if request.progress:
            meta = {**meta, "progressToken": Raw(b"%d" % request.id)}
        params = {**request.params, "_meta": meta} if meta else request.params
        message = Message(id=request.id, method=request.method, params=jsonrpc.raw(params) if params else UNSET)
        self.link.send(message, request.headers)

    def cancel(self, request: Request, reason: str) -> None:
        """Forget a request and tell the upstream that its reply is no longer wanted."""
        # Each connection counts its own ids: a request of another one may have the same.
        if self._pending.get(request.id) is not request or self.link is None:
            return
        del self._pending[request.id]
        self._askers.give_up(request)
        if not self.link.abandon(request.id) and request.method not in ("initialize", "server/discover"):
            params = {"requestId": request.id, "reason": reason}
            self.notify("notifications/cancelled", params)

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self._send_now(Message(method=method, params=UNSET if params is None else jsonrpc.raw(params)))

    def expire(self, now: float, asleep_s: float = 0.0) -> list[Request]:
        """Cancel the requests whose deadline has passed, and return them; the caller answers them."""
        postpone(self._pending.values(), now, asleep_s)
        late = [request for request in self._pending.values() if request.deadline and request.deadline < now]
        for request in late:
            self.cancel(request, "timed out")
        return late

    def drop(self, reason: str) -> None:
        """Answer every open request with `Lost`."""
        self._gone = self._gone or reason
        self.ready = False
        self._notices.close()
        pending = list(self._pending.values())
        self._pending.clear()
        for request in pending:
            request.reply(Lost(reason, sent=request.sent))

    async def close(self) -> None:
        now = asyncio.get_running_loop().time
        end = now() + _LEAVE_S
        while self._is_leaving and self.in_flight and now() < end:
            await asyncio.sleep(0.02)
        self.drop("its session had expired" if self._is_leaving else "it was stopped")
        if self.link is not None:
            await self.link.close()

    # -- Receiver: what the link brings

    def on_message(self, message: Message, request: int | None) -> None:
        if self._gone:
            return  # nobody waits for what comes late, and its ids may be those of another process
        try:
            if message.method is UNSET:
                self._on_reply(message)
            elif message.id is UNSET:
                self._on_notification(message, request)
            else:
                self._on_request(message, request)
        except Exception:  # the boundary of a message: one that breaks us must not end the connection
            log.exception("a message of an upstream could not be handled")

    def on_invalid_line(self, line: bytes) -> None:
        self._events.on_invalid_line(line)

    def on_failed(self, request: int, reason: str, *, sent: bool) -> None:
        if (waiting := self._pending.pop(request, None)) is not None:
            if sent:
                self._askers.give_up(waiting)
            waiting.reply(Lost(reason, sent))

    def on_too_large(self, request: int | None, limit: int) -> None:
        self._pass_over(request, f"its answer is larger than {limit / 2**20:g} MiB; raise max_message_mib to read it")

    def on_unreadable(self, request: int | None) -> None:
        self._pass_over(request, UNREADABLE)

    def _pass_over(self, request: int | None, reason: str) -> None:
        """Give up the request whose reply is not read; one without an id is that of the only request in flight."""
        if request is None:
            requests = [each for each in self._askers.all() if each.method != "subscriptions/listen"]
            request = requests[0].id if len(requests) == 1 else 0
        self._askers.discard(request)
        if (asked := self._pending.pop(request, None)) is not None:
            asked.reply(Lost(reason, sent=True, is_unread=True))

    def on_expired(self, request: int | None) -> None:
        waiting = self._pending.pop(request, None) if request is not None else None
        if not self._is_leaving and not self._gone:
            self._is_leaving, self.ready = True, False
            self._events.on_lost(self, "")
        if waiting is None:
            return
        # The upstream has not handled the request, so it may be sent again on the next connection.
        waiting.sent = False
        if waiting.resent:
            reason = (
                "refused it twice as one of an unknown session, which had just begun: do several servers answer there?"
            )
            waiting.reply(Lost(reason, sent=False))
        else:
            waiting.resent = True
            self._events.on_unhandled(self, waiting)

    def on_poll(self, request: int, retry_ms: int) -> None:
        if (waiting := self._pending.get(request)) is not None and waiting.poll is not None:
            waiting.poll()

    def on_closed(self, reason: str) -> None:
        if not self._gone:
            self.drop(reason)
            self._events.on_lost(self, reason)

    def _on_reply(self, message: Message) -> None:
        if jsonrpc.has_much_else(message.result) or jsonrpc.has_much_else(message.error):
            reason = f"its answer has more than {jsonrpc.MOST_ELSE:,} parts outside of its content"
            self._pass_over(_own_id(message.id), reason)
            return
        request = self._pending.pop(_own_id(message.id), None)
        if request is None:
            self._on_stray_reply(message)
            return
        self._has_answered = True
        if message.result is not UNSET and message.error is not UNSET:
            _drop_null(message)
        if self.era == "modern" and _tells_of_task(request, message):
            self._askers.give_up(request)  # its server works on, and is asked again within `_GIVEN_UP_S`
        reply = request.reply
        request.drop_callbacks()
        reply(message)

    def _on_stray_reply(self, message: Message) -> None:
        """Handle a reply whose id no request has. It is passed over, unless nothing else came for the handshake."""
        self._askers.discard(_own_id(message.id))
        greetings = [each for each in self._pending.values() if each.method in ("initialize", "server/discover")]
        if self._has_answered or not greetings or 1 <= _own_id(message.id) <= self._last_id:
            return
        if message.error is not UNSET:
            message.id = greetings[0].id  # a server that refuses a message may not have read its id
            self._on_reply(message)
            return
        ident = jsonrpc.encode(message.id).decode()[:_MOST_ID]
        reason = f"answers with the id {ident}{NO_REQUEST}, so its answers cannot be told apart"
        self.on_failed(greetings[0].id, reason, sent=True)

    def _on_notification(self, message: Message, request: int | None) -> None:
        if isinstance(message.params, Raw) and len(message.params) > MOST_SIZE:
            log.info("a notification of %d bytes was left out", len(message.params))
            return
        if message.method == "notifications/progress":
            token = _member(message.params, "progressToken")  # ours is the id of the request
            request = token if isinstance(token, int) else None
        elif message.method == "notifications/cancelled":
            self._on_cancelled(message)
            return
        elif message.method == "notifications/elicitation/complete":
            self._question_clock.complete(_member(message.params, "elicitationId"))
        elif message.method == "notifications/message":
            if request is None and (asker := self._askers.only(self._askers.logging())) is not None:
                request = asker.id
            elif request not in self._pending and (request is not None or self._is_leaving):
                return  # its request is over, or its session
        waiting = self._pending.get(request) if request is not None else None
        go: Callable[[Message], None] = partial(self._events.on_notification, self)
        # Whatever stream it comes on, an announcement belongs to no request.
        is_of_request = message.method in ("notifications/progress", "notifications/message")
        if is_of_request and waiting is not None and waiting.notice is not None:
            if waiting.timeout and not waiting.questions:
                waiting.deadline = min(time.monotonic() + waiting.timeout, waiting.sent_at + _LIVING_S)
            if waiting.wants is not None and not waiting.wants(str(message.method)):
                return
            go = waiting.notice
        elif message.method == "notifications/progress":
            return
        self._notices.pass_notice(message, go)

    def _on_cancelled(self, message: Message) -> None:
        """The upstream ends a subscription of ours (modern era), or takes back a question (legacy era)."""
        target = _member(message.params, "requestId")
        if self.era == "legacy" and target is not None:
            if isinstance(target, jsonrpc.IDS):
                self._question_clock.go_on(target)
            self._events.on_notification(self, message)
            return
        waiting = self._pending.get(target) if isinstance(target, int) else None
        if waiting is not None and waiting.method == "subscriptions/listen":
            self.on_failed(waiting.id, "the upstream ended the subscription", sent=True)

    def _on_request(self, message: Message, request: int | None) -> None:
        if message.method == "ping":
            self._send_now(Message(id=message.id, result=jsonrpc.EMPTY))
            return
        asking = self._askers.asking() if request is None else []
        waiting = self._pending.get(request) if request is not None else self._askers.only(asking)
        if waiting is None and (request is not None or self._is_leaving):
            over = f"{message.method}: the request that it belongs to is over"
            ident = None if message.id is UNSET else message.id
            self._send_now(answer_error(ident, jsonrpc.INVALID_REQUEST, over))
            return
        self._question_clock.go_on(message.id)  # of an earlier question with this id
        # Where a transport cannot tell, any of them may be the one that waits.
        self._question_clock.stop(message, asking if request is None else [waiting] if waiting else [])

        def answer(reply: Message) -> None:
            if reply.method is UNSET:
                self._question_clock.go_on(message.id, reply)
            self._send_now(reply)

        self._events.on_request(message, waiting, answer)

    def doubt_s(self) -> float:
        """Return for how many more seconds a question of the upstream may belong to a request that was given up."""
        return self._askers.doubt_s()

    def told_of(self) -> list[Request]:
        """Return the clients' requests to which a log entry of the upstream may belong."""
        return self._askers.logging()

    def _send_now(self, message: Message) -> None:
        if self.link is not None and not self._gone:
            self.link.send(message)


async def _initialize(connection: Connection, capabilities: dict[str, Any], patience: float) -> ServerInfo:
    """Do the handshake of the legacy era."""
    params = {
        "protocolVersion": versions.LATEST_LEGACY,
        "capabilities": capabilities,
        "clientInfo": versions.IDENTITY,
    }
    result = await connection.ask("initialize", params, patience)
    version = result.get("protocolVersion")
    if version not in versions.LEGACY_VERSIONS:
        raise HandshakeError(f"speaks protocol version {str(version)[:40]!r}, which we do not")
    connection.notify("notifications/initialized")
    return _read_server_info(version, result, result.get("serverInfo"))


def _own_meta(capabilities: dict[str, Any]) -> dict[str, Raw]:
    """Return the `_meta` of our own requests in the modern era."""
    return {
        versions.META_VERSION: jsonrpc.raw(versions.LATEST_MODERN),
        versions.META_CLIENT_INFO: versions.IDENTITY_RAW,
        versions.META_CAPABILITIES: jsonrpc.raw(capabilities),
    }


async def _discover(connection: Connection) -> ServerInfo:
    """Do the handshake of the modern era."""
    try:
        result = await connection.ask("server/discover", {}, _PROBE_S)
    except HandshakeError as error:
        supported = error.data.get("supported") if isinstance(error.data, dict) else None
        is_ours = isinstance(supported, list) and versions.LATEST_MODERN in supported
        if error.code != jsonrpc.UNSUPPORTED_VERSION or not is_ours:
            raise
        # It lists our revision among those it supports: we ask again (specification: basic, versioning).
        result = await connection.ask("server/discover", {}, _PROBE_S)
    supported, meta = result.get("supportedVersions"), result.get("_meta")
    if not isinstance(supported, list) or versions.LATEST_MODERN not in supported:
        raise HandshakeError(f"supports only {str(supported or [])[:200]}", jsonrpc.UNSUPPORTED_VERSION)
    info = meta.get(versions.META_SERVER_INFO) if isinstance(meta, dict) else None
    return _read_server_info(versions.LATEST_MODERN, result, info)


def _read_server_info(version: str, result: dict[str, Any], info: object) -> ServerInfo:
    instructions = result.get("instructions")
    return ServerInfo(
        version,
        _short_object(result.get("capabilities")),
        _short_object(info),
        clean(instructions[:MOST_INSTRUCTIONS]) if isinstance(instructions, str) else "",
    )


def _short_object(value: object) -> dict[str, Any]:
    """Return an object that a server says of itself; {} if it is longer than anybody has to say."""
    if not isinstance(value, dict) or len(jsonrpc.encode(value)) > MOST_ABOUT_ITSELF:
        return {}
    return value


def _own_id(ident: Id | UnsetType | None) -> int:
    """Return the id of a reply as one of ours, which servers may send back as text; 0 if it cannot be one."""
    if isinstance(ident, str):
        return int(ident) if ident.isascii() and ident.isdigit() and len(ident) <= _MOST_ID else 0
    return ident if isinstance(ident, int) else 0


def _tells_of_task(request: Request, reply: Message) -> bool:
    """Return whether a reply says that a task goes on."""
    if request.method not in ("tools/call", "tasks/get") or not isinstance(reply.result, Raw):
        return False
    if len(reply.result) > _MOST_TASK or not jsonrpc.holds(reply.result, b'"taskId"'):
        return False
    return _member(reply.result, "status") in ("working", "input_required")


def _drop_null(message: Message) -> None:
    """Keep what a reply says; some servers write the other one of result and error as null."""
    if isinstance(message.error, Raw) and bytes(message.error) == b"null":
        message.error = UNSET
    elif isinstance(message.result, Raw) and bytes(message.result) == b"null":
        message.result = UNSET


def _noise_text(noise: str) -> str:
    """Say what a server has written in place of messages, by the line that tells most."""
    lines = [line for line in noise.splitlines() if line.strip()]
    line = next((line for line in lines if _HOPELESS.search(line)), lines[-1] if lines else "")
    return f"wrote {line.strip()[:_MOST_NOISE]!r} to its output{NOT_MCP}"


def _member(value: Raw | UnsetType, name: str) -> Any:
    """Return one member of an object, decoded; None if it is missing or the value is not an object."""
    try:
        return jsonrpc.decode_value(jsonrpc.fields(value)[name])
    except (KeyError, ValueError):
        return None


def ignore_reply(reply: Reply) -> None:
    """Take a reply that nobody needs."""


def answer_error(id: Id | None, code: int, reason: str) -> Message:
    """Make an error reply to a question of an upstream."""
    return Message(id=id, error=jsonrpc.error_object(code, reason))
