"""One client on the wire: its sessions, its requests in flight, and the requests and notifications that go to it.

A transport stands above it and brings messages. What a request means is the router's to decide.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from msgspec import Struct
from msgspec.json import Decoder

from foretool.server.clients.exchange import Exchange, Outbox
from foretool.server.clients.session import Session, SessionMemo
from foretool.server.config.loader import Profile
from foretool.server.lists.growth import SessionList, ToolList
from foretool.server.protocol import jsonrpc, translate, versions
from foretool.server.protocol.apps import shows_pages
from foretool.server.protocol.general_greeting import UNTOLD
from foretool.server.protocol.jsonrpc import UNSET, Id, Message, Raw, RpcError
from foretool.server.system.processes import own_person
from foretool.server.transports.client.base import Channel
from foretool.server.upstreams.connection import Party
from foretool.server.upstreams.question_clock import QUESTION_S
from foretool.storage.records import Era, SessionRecord

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Log levels, least severe first."""

SHELL: Final = "foretool/shell"
"""The experimental capability of a client that calls tools by name and never lists them (`foretool call`)."""

_MOST_SESSIONS: Final = 256
"""Callers that one modern front keeps apart; a caller that comes back after more than these starts a new session."""

_numbers: Final = itertools.count(1)
"""Numbers of clients."""

log = logging.getLogger("foretool.client")


class Registry(Protocol):
    """The part of `ClientRegistry` that a client uses: it provides lists and sessions."""

    make_exchange: Callable[..., Exchange]
    is_ending: bool
    """This process ends, and its clients do not."""

    def tool_list(self, client: Client) -> ToolList: ...

    def set_levels(self) -> None: ...

    def begin_session(self, client: Client, era: Era) -> Session: ...

    def resume_session(self, client: Client, memo: SessionMemo) -> Session: ...

    def end_session(self, session: Session, *, goes_on: bool = False) -> None: ...


class Router(Protocol):
    """Answers the requests of clients, and is told of what else they do."""

    def handle(self, exchange: Exchange) -> None: ...

    def on_roots_changed(self, client: Client) -> None: ...

    def on_closed(self, client: Client) -> None: ...


class _Memo(Struct, frozen=True):
    """What another replica needs to know of a client of the legacy era."""

    info: dict[str, Any]
    capabilities: dict[str, Any]
    version: str
    log_level: str
    session: SessionMemo | None


class _Question(Struct, frozen=True):
    answer: Callable[[Message], None]
    exchange: Exchange | None
    """In whose course it was asked."""
    until: float
    """When it is given up, in monotonic seconds."""


_decode_memo = Decoder(_Memo).decode


class ClientQuestions:
    def __init__(self, send: Callable[[bytes], None]) -> None:
        """`send` sends what belongs to no request of the client."""
        self.name = "foretool"
        """What the ids of questions begin with."""
        self._send = send
        self._open: dict[Id, _Question] = {}
        self._progress: dict[Id, tuple[Raw, Callable[[Raw], None]]] = {}
        """By the id of a question: the token its upstream gave with it, and who takes what the client reports."""
        self._ids = itertools.count(1)

    def ask(
        self,
        method: str,
        params: Raw | Any,
        answer: Callable[[Message], None],
        exchange: Exchange | None,
        progress: Callable[[Raw], None] | None = None,
    ) -> Id:
        """Send a request to a legacy client, in the course of `exchange` if it belongs to one; return its id.

        `progress`: takes what the client reports meanwhile, under the token that `params` came with.
        """
        ident = f"{self.name}-{next(self._ids)}"
        self._open[ident] = _Question(answer, exchange, time.monotonic() + QUESTION_S)
        params, token = translate.replace_token(params, ident if progress is not None else None)
        if token is not None and progress is not None:
            self._progress[ident] = (token, progress)
        data = jsonrpc.encode(Message(id=ident, method=method, params=params))
        if exchange is not None:
            exchange.send(data)
        else:
            self._send(data)
        return ident

    def withdraw(self, question: Id, reason: str, exchange: Exchange | None) -> None:
        """Cancel a question that was asked in the course of `exchange`; its answer is no longer wanted."""
        self._progress.pop(question, None)
        if self._open.pop(question, None) is None:
            return
        params = jsonrpc.raw({"requestId": question} | ({"reason": reason} if reason else {}))
        data = jsonrpc.notification("notifications/cancelled", params)
        if exchange is not None and not exchange.done:
            exchange.send(data)
        else:
            self._send(data)

    def take_answer(self, message: Message) -> None:
        if not isinstance(message.id, int | str):
            return
        self._progress.pop(message.id, None)
        if (question := self._open.pop(message.id, None)) is not None:
            question.answer(message)

    def expire(self, now: float) -> None:
        """Give up the questions that nobody has answered in time, `now` in monotonic seconds."""
        for ident, question in [item for item in self._open.items() if item[1].until < now]:
            reason = f"nobody answered within {QUESTION_S:g} s"
            self.withdraw(ident, reason, question.exchange)
            question.answer(Message(id=ident, error=jsonrpc.error_object(jsonrpc.INTERNAL_ERROR, reason)))

    def pass_progress(self, params: Any) -> None:
        """Give the progress that a client reports about a question to whoever asked it."""
        try:
            token = jsonrpc.text(jsonrpc.fields(params).get(translate.PROGRESS)) or ""
        except ValueError:
            return
        if (known := self._progress.get(token)) is not None:
            theirs, report = known
            report(jsonrpc.merge_members(params, {translate.PROGRESS: theirs}))

    def close(self) -> None:
        """Answer every open question with an error, because the client is gone."""
        for question in list(self._open.values()):
            question.answer(Message(id=0, error=jsonrpc.error_object(jsonrpc.INTERNAL_ERROR, "the client is gone")))
        self._open.clear()


class Client:
    """A stdio process, a legacy HTTP session, or the modern HTTP callers that share a profile and a credential."""

    def __init__(
        self, era: Era, transport: str, profile: Profile, principal: str, standalone: Channel, outbox: Outbox,
        registry: Registry, router: Router,
    ) -> None:  # fmt: skip
        self.era: Era = era
        self.transport = transport
        self.profile = profile
        self.principal = principal
        self.standalone = standalone
        """Takes what belongs to no request."""
        self.folder = ""
        """Where a window of a shared proxy works, "" for every other client."""
        self.window = ""
        """The name of such a window."""
        self.earlier: list[SessionRecord] = []
        """The sessions of such a window that another proxy has recorded and that do not go on here yet, the latest
        first."""
        self.is_cut_off = False
        """This process ends, so what the client waits for is lost, and it gets errors."""
        self.person = own_person()
        """Who calls: the owner of the credential, else the user who runs this process."""
        self.info: dict[str, Any] = {}
        self.capabilities: dict[str, Any] = {}
        self.session: Session | None = None
        """The session of the request at hand; a legacy client has one, a modern front one per caller."""
        self.tools = registry.tool_list(self)
        self.exchanges: dict[object, Exchange] = {}
        self.listens: dict[object, tuple[Exchange, dict[str, Any]]] = {}
        """Open `subscriptions/listen` requests and their filters."""
        self.log_level = ""
        self.version = ""
        """The version of the protocol that a legacy client was told."""
        self.told_servers: frozenset[str] = frozenset()
        """The servers whose own `instructions` stood in ours when it was greeted."""
        self.warned = ""
        """What it was last told about foretool itself."""
        self._number = next(_numbers)
        self._outbox = outbox
        self._registry = registry
        self._make_exchange = registry.make_exchange
        self._router = router
        self._sessions: dict[bytes, Session] = {}
        self._questions = questions = ClientQuestions(lambda data: outbox.send(standalone, data))
        self.ask, self.withdraw, self.expire = questions.ask, questions.withdraw, questions.expire
        self._goes_on = False
        """Its session goes on at another replica."""

    # -- Front: what the transport brings

    def receive(self, message: Message, channel: Channel) -> None:
        """Handle a message of the client; never raises for anything it contains."""
        if message.method is UNSET:
            self._questions.take_answer(message)
        elif message.id is UNSET:
            self._on_notification(message)
        else:
            self._on_request(message, channel)

    @property
    def in_flight(self) -> int:
        return len(self.exchanges)

    @property
    def says_goodbye(self) -> bool:
        """Whether we learn that it has gone: callers over HTTP in the modern era have no session that could end."""
        return not (self.transport == "http" and self.era == "modern")

    @property
    def is_shell(self) -> bool:
        """Whether it is `foretool call`, which calls tools by name and never lists them."""
        declared = self.capabilities.get("experimental")
        return isinstance(declared, dict) and SHELL in declared

    @property
    def is_program(self) -> bool:
        """Whether a program reads its results, and no model sees its list."""
        return self.transport == "library" or self.is_shell

    def cancel(self, channel: Channel, reason: str) -> None:
        if (exchange := self.exchanges.get(channel)) is not None:
            exchange.drop(reason)

    def close(self) -> None:
        for listening, _ in list(self.listens.values()):
            self._end_listen(listening)
        # The transport lets go of the channels next, so what is said last is sent now.
        self._outbox.flush()
        self.is_cut_off = self._registry.is_ending and not self._goes_on
        for exchange in list(self.exchanges.values()):
            exchange.drop("foretool ends" if self.is_cut_off else "the client is gone")
        self._questions.close()
        self._router.on_closed(self)

    # -- Front: a session that several replicas serve

    def share(self, replica: str) -> None:
        self._questions.name = f"foretool-{replica}"

    def leave(self) -> None:
        self._goes_on = True
        self.close()

    @property
    def session_key(self) -> str:
        return self.session.record.key if self.session is not None else ""

    def memo(self) -> bytes:
        session = self.session.memo() if self.session is not None else None
        return jsonrpc.encode(_Memo(self.info, self.capabilities, self.version, self.log_level, session))

    def resume(self, memo: bytes) -> None:
        kept = _decode_memo(memo)
        self.info, self.capabilities, self.version = kept.info, kept.capabilities, kept.version
        if kept.session is not None:
            if self.session is None:
                self.session = self._registry.resume_session(self, kept.session)
                self._sessions[b"shared"] = self.session
            self.session.resume(kept.session)
            self.tools.resume(self.session.list, kept.session.exposure)
        if kept.log_level != self.log_level:
            self.log_level = kept.log_level
            self._registry.set_levels()

    def note_listed(self) -> None:
        self.tools.mark_listed()

    # -- sessions

    def sessions(self) -> list[Session]:
        return list(self._sessions.values())

    def lists(self) -> list[SessionList]:
        return [session.list for session in self._sessions.values()]

    def introduce(self, info: dict[str, Any], capabilities: dict[str, Any], era: Era) -> None:
        """Record who sends the request at hand: its session begins or goes on."""
        self.info, self.capabilities = info, capabilities
        key = jsonrpc.encode([era, info, shows_pages(capabilities)])
        if (session := self._sessions.pop(key, None)) is None:
            session = self._registry.begin_session(self, era)
        self._sessions[key] = self.session = session  # the latest last
        if len(self._sessions) > _MOST_SESSIONS:
            self._registry.end_session(self._sessions.pop(next(iter(self._sessions))))

    def take_earlier(self, wanted: SessionRecord) -> SessionRecord | None:
        """Return the latest session that another proxy has recorded of this window and this client, to be continued;
        None without one. Each session is returned once."""
        same = [each for each in self.earlier if _are_of_one_client(each, wanted)]
        self.earlier = [each for each in self.earlier if each not in same]
        return same[0] if same else None

    def end_sessions(self) -> None:
        """End every session: the client has begun another conversation, or is gone."""
        self.tools.close()
        for session in self._sessions.values():
            self._registry.end_session(session, goes_on=self._goes_on)
        self._sessions.clear()

    @property
    def party(self) -> Party:
        """The clients that may learn of its calls: those with its credential and profile. A window is alone."""
        return Party(self.principal, self.profile.name, self._number if self.folder else 0)

    # -- requests of the client

    def _key(self, message_id: Id, channel: Channel) -> object:
        # Modern HTTP callers share one front, and each counts its own ids.
        return channel if self.transport == "http" and self.era == "modern" else message_id

    def _on_request(self, message: Message, channel: Channel) -> None:
        ident, method = message.id, message.method
        assert isinstance(ident, jsonrpc.IDS) and isinstance(method, str)
        try:
            params = jsonrpc.fields(message.params)
            meta = jsonrpc.fields(params.pop("_meta", UNSET))
        except ValueError:
            self._refuse(ident, channel, jsonrpc.INVALID_PARAMS, f"{method}: params must be an object")
            return
        era = self._era_of(method, meta)
        exchange = self._make_exchange(self, channel, self._outbox, ident, method, era, params, meta, self._forget)
        key = self._key(ident, channel)
        if key in self.exchanges:
            self._refuse(ident, channel, jsonrpc.INVALID_REQUEST, f"request id {ident!r} is already in use")
            return
        self.exchanges[key] = exchange
        exchange.attempt(self._begin, exchange)

    def _refuse(self, ident: Id, channel: Channel, code: int, text: str) -> None:
        self._outbox.finish(channel, jsonrpc.failure(ident, jsonrpc.error_object(code, text)), code)

    def _begin(self, exchange: Exchange) -> None:
        if exchange.era == "modern":
            self._read_envelope(exchange.meta)
        elif self.session is None and exchange.method != "initialize":
            self.introduce({}, self.capabilities, "legacy")
        exchange.session = self.session
        self._router.handle(exchange)

    def _forget(self, exchange: Exchange) -> None:
        key = self._key(exchange.id, exchange.channel)
        if self.exchanges.get(key) is exchange:
            del self.exchanges[key]
        self.listens.pop(key, None)

    def _era_of(self, method: str, meta: dict[str, Raw]) -> Era:
        """Return the era of a request. On stdio each request names its own; HTTP has told them apart before."""
        if self.transport == "http":
            return self.era
        if method != "initialize" and (versions.META_VERSION in meta or method == "server/discover"):
            self.era = "modern"
            return "modern"
        self.era = "legacy"
        return "legacy"

    def _read_envelope(self, meta: dict[str, Raw]) -> None:
        """Check and take in what a modern request says of its sender (specification: basic, `_meta`)."""
        version = jsonrpc.text(meta.get(versions.META_VERSION))
        if version is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"_meta lacks {versions.META_VERSION}")
        if version not in versions.MODERN_VERSIONS:
            data = {"supported": [*versions.MODERN_VERSIONS, *versions.LEGACY_VERSIONS], "requested": version}
            raise RpcError(jsonrpc.UNSUPPORTED_VERSION, "Unsupported protocol version", data)
        capabilities = jsonrpc.plain_object(meta.get(versions.META_CAPABILITIES))
        if capabilities is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"_meta lacks {versions.META_CAPABILITIES}")
        self.introduce(jsonrpc.plain_object(meta.get(versions.META_CLIENT_INFO)) or {}, capabilities, "modern")

    # -- notifications of the client

    def _on_notification(self, message: Message) -> None:
        if message.method == "notifications/cancelled":
            self._on_cancelled(message)
        elif message.method == "notifications/progress":
            self._questions.pass_progress(message.params)
        elif message.method == "notifications/roots/list_changed":
            self._router.on_roots_changed(self)
        elif message.method == UNTOLD:
            self.told_servers = frozenset()  # its window has greeted it with other words (`local/opening`)

    def _on_cancelled(self, message: Message) -> None:
        try:
            params = jsonrpc.decode_value(message.params) if message.params is not UNSET else {}
            target, reason = params.get("requestId"), str(params.get("reason") or "cancelled")
        except (ValueError, AttributeError):
            return
        exchange = self.exchanges.get(target) if isinstance(target, int | str) else None
        if exchange is not None and exchange.method != "initialize":
            exchange.drop(reason)

    # -- questions to the client

    def declared(self, exchange: Exchange | None = None) -> dict[str, Any]:
        """Return the capabilities of the client, or of the sender of this exchange."""
        if exchange is not None and exchange.era == "modern":
            return jsonrpc.plain_object(exchange.meta.get(versions.META_CAPABILITIES)) or {}
        return self.capabilities

    # -- notifications to the client

    def notify(self, kind: str, method: str, params: dict[str, Any] | None = None, uri: str = "") -> bool:
        """Send a notification that belongs to no request: a legacy client gets it as it is, a modern one where a
        `subscriptions/listen` has the filter `kind` or the resource `uri`. Return whether anyone gets it."""
        is_sent = False
        if (self.transport == "http" and self.era == "modern") or self.listens:
            for exchange, wanted in self.listens.values():
                if uri in wanted.get("resourceSubscriptions", ()) if uri else wanted.get(kind):
                    meta = {"_meta": {versions.META_SUBSCRIPTION: exchange.id}}
                    exchange.send(jsonrpc.notification(method, jsonrpc.raw({**(params or {}), **meta})))
                    is_sent = True
        elif self.era == "legacy" and self.session is not None:
            raw = UNSET if params is None else jsonrpc.raw(params)
            self._outbox.send(self.standalone, jsonrpc.notification(method, raw))
            is_sent = True
        return is_sent

    def notify_raw(self, message: Message) -> None:
        """Send an upstream's notification without changing it."""
        self._outbox.send(self.standalone, jsonrpc.encode(message))

    def wants_log(self, level: str) -> bool:
        """Return whether the client wants log entries of this level (specification 2025-11-25: logging)."""
        return is_as_severe(level, self.log_level)

    def add_listen(self, exchange: Exchange, honoured: dict[str, Any]) -> None:
        """Keep a `subscriptions/listen` request open."""
        self.listens[self._key(exchange.id, exchange.channel)] = (exchange, honoured)

    def _end_listen(self, exchange: Exchange) -> None:
        """End a subscription from our side (specification: subscriptions, graceful closure)."""
        exchange.own_result({"_meta": {versions.META_SUBSCRIPTION: exchange.id}})
        if self.transport == "stdio":
            params = jsonrpc.raw({"requestId": exchange.id, "reason": "the server ends"})
            self._outbox.send(exchange.channel, jsonrpc.notification("notifications/cancelled", params))


def _are_of_one_client(one: SessionRecord, other: SessionRecord) -> bool:
    return (one.client, one.version, one.era, one.profile) == (other.client, other.version, other.era, other.profile)


def is_as_severe(level: str, least: str) -> bool:
    """Return whether a log level is at least as severe as another; unknown levels are let through."""
    return least not in LEVELS or level not in LEVELS or LEVELS.index(level) >= LEVELS.index(least)
