"""One client on the wire: its requests in flight, what it can do, and the methods of both eras.

Above it stands an edge, which knows one transport; beside it `Session`, which decides without I/O; below it upstreams.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from foretool.server.clients.exchange import Exchange
from foretool.server.clients.exposure import choose_policy, list_result
from foretool.server.clients.session import Session
from foretool.server.protocol import jsonrpc, translate, versions
from foretool.server.protocol.jsonrpc import UNSET, Id, Message, Raw, RpcError
from foretool.server.transports.client.base import Channel
from foretool.server.upstreams.connection import Lost, Reply, Request
from foretool.storage.records import Era, Exposure, Policy

if TYPE_CHECKING:
    from foretool.server.clients.exposure import View
    from foretool.server.config.loader import Profile
    from foretool.server.proxy import Proxy
    from foretool.server.upstreams.upstream import Upstream

RELIST_S: Final = 2.0
"""A client that lists again within this time of `list_changed` counts as one that re-lists."""

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Log levels, least severe first."""

TTL_MS: Final = 3_600_000
"""How long a modern client may keep our lists; a notification ends that earlier."""

MOST_CALLERS: Final = 256
"""Conversations that one modern front keeps apart; a caller that comes back after more than these begins anew."""

GRACE_S: Final = 0.05
"""After the client listed again, a held result waits this long, so that over HTTP it does not overtake the list."""

log = logging.getLogger("foretool.client")

Handler = Callable[["Client", Exchange], None]
OnReply = Callable[[Exchange, Reply], None]
ListReason = Literal["list", "growth", "epoch"]


class Client:
    """See the module."""

    def __init__(
        self, proxy: Proxy, era: Era, transport: str, unasked: Channel, profile: Profile, principal: str
    ) -> None:
        self.proxy = proxy
        self.era: Era = era
        self.transport = transport
        self.unasked = unasked
        self.profile = profile
        self.principal = principal
        self.info: dict[str, Any] = {}
        self.capabilities: dict[str, Any] = {}
        self.session: Session | None = None
        """The conversation of the request at hand; a legacy client has one, a modern front one per caller."""
        self._sessions: dict[bytes, Session] = {}
        self.exchanges: dict[object, Exchange] = {}
        self.listens: dict[object, tuple[Exchange, dict[str, Any]]] = {}
        """Open `subscriptions/listen` requests and their filters."""
        self.subscribed: set[str] = set()
        """Resources subscribed to in the legacy way."""
        self.log_level = ""
        self._questions: dict[Id, Callable[[Message], None]] = {}
        self._progress: dict[Id, tuple[Raw, Callable[[Raw], None]]] = {}
        """By the id of a question: the token its upstream gave with it, and who takes what the client reports."""
        self._ids = itertools.count(1)
        self._held: list[Callable[[], None]] = []
        self._announced_at = 0.0

    # -- Front: what the edge brings

    def receive(self, message: Message, channel: Channel) -> None:
        """A message of the client; never raises for anything it contains."""
        if message.method is UNSET:
            self._answered(message)
        elif message.id is UNSET:
            self._on_notification(message)
        else:
            self._on_request(message, channel)

    def cancel(self, channel: Channel, reason: str) -> None:
        if (exchange := self.exchanges.get(channel)) is not None:
            exchange.drop(reason)

    def close(self) -> None:
        for listening, _ in list(self.listens.values()):
            self._end_listen(listening)
        # The edge lets go of the channels next, so what is said last is sent now.
        self.proxy.outbox.flush()
        for exchange in list(self.exchanges.values()):
            exchange.drop("the client is gone")
        for question in list(self._questions.values()):
            question(Message(id=0, error=jsonrpc.error_object(jsonrpc.INTERNAL_ERROR, "the client is gone")))
        self._questions.clear()
        self.proxy.gone(self)

    def sessions(self) -> list[Session]:
        return list(self._sessions.values())

    def wants_log(self, level: str) -> bool:
        """Whether a log entry of this level is for it (specification 2025-11-25: logging)."""
        return is_as_severe(level, self.log_level)

    def is_kin(self, other: Client) -> bool:
        """Whether what concerns the other concerns it as well: one credential, one profile."""
        return (self.principal, self.profile.name) == (other.principal, other.profile.name)

    # -- requests

    def _key(self, message_id: Id, channel: Channel) -> object:
        # Modern HTTP callers share one front, and each counts its own ids.
        return channel if self.transport == "http" and self.era == "modern" else message_id

    def _on_request(self, message: Message, channel: Channel) -> None:
        ident, method = message.id, message.method
        assert isinstance(ident, int | str) and isinstance(method, str)
        try:
            params = jsonrpc.fields(message.params)
            meta = jsonrpc.fields(params.pop("_meta", UNSET))
        except ValueError:
            error = jsonrpc.error_object(jsonrpc.INVALID_PARAMS, f"{method}: params must be an object")
            self.proxy.outbox.finish(channel, jsonrpc.failure(ident, error), jsonrpc.INVALID_PARAMS)
            return
        era = self._era_of(method, meta)
        exchange = Exchange(self, channel, ident, method, era, params, meta)
        key = self._key(ident, channel)
        if key in self.exchanges:
            error = jsonrpc.error_object(jsonrpc.INVALID_REQUEST, f"request id {ident!r} is already in use")
            self.proxy.outbox.finish(channel, jsonrpc.failure(ident, error), jsonrpc.INVALID_REQUEST)
            return
        self.exchanges[key] = exchange
        self.attempt(exchange, Client._begin)

    def _begin(self, exchange: Exchange) -> None:
        if exchange.era == "modern":
            self._read_envelope(exchange.meta)
        elif self.session is None and exchange.method != "initialize":
            self._introduce({}, "legacy")
        exchange.session = self.session
        handler = HANDLERS[exchange.era].get(exchange.method, Client.unknown_method)
        if "requestState" not in exchange.params or not self.proxy.questions.resume(exchange):
            handler(self, exchange)

    def attempt(self, exchange: Exchange, step: Handler) -> None:
        """Carry out one step of answering a request, unless it is answered; what goes wrong in it is its own error."""
        if exchange.done:
            return
        try:
            step(self, exchange)
        except RpcError as error:
            exchange.error(error.code, str(error), error.data)
        except ValueError as error:
            exchange.error(jsonrpc.INVALID_PARAMS, f"{exchange.method}: {error}")
        except Exception:  # the boundary of a request: a mistake of ours in one must not end the others
            log.exception("Failed")
            _failed(exchange)

    def forget(self, exchange: Exchange) -> None:
        key = self._key(exchange.id, exchange.channel)
        if self.exchanges.get(key) is exchange:
            del self.exchanges[key]
        if (listened := self.listens.pop(key, None)) is not None:
            self.proxy.aggregate.release(listened[1].get("resourceSubscriptions", ()))

    def _era_of(self, method: str, meta: dict[str, Raw]) -> Era:
        """On stdio each request says its own era; HTTP has told them apart before."""
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
        capabilities = _object(meta.get(versions.META_CAPABILITIES))
        if capabilities is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"_meta lacks {versions.META_CAPABILITIES}")
        self.capabilities = capabilities
        self._introduce(_object(meta.get(versions.META_CLIENT_INFO)) or {}, "modern")

    def _introduce(self, info: dict[str, Any], era: Era) -> None:
        """The client has said who it is; its conversation begins, or goes on."""
        self.info = info
        key = jsonrpc.encode([era, info])
        if (session := self._sessions.pop(key, None)) is None:
            session = self.proxy.begin_session(self, era)
        self._sessions[key] = self.session = session  # the latest last
        if len(self._sessions) > MOST_CALLERS:
            self.proxy.end_session(self._sessions.pop(next(iter(self._sessions))))

    def _on_notification(self, message: Message) -> None:
        if message.method == "notifications/cancelled":
            try:
                params = jsonrpc.plain(message.params) if message.params is not UNSET else {}
                target, reason = params.get("requestId"), str(params.get("reason") or "cancelled")
            except (ValueError, AttributeError):
                return
            exchange = self.exchanges.get(target) if isinstance(target, int | str) else None
            if exchange is not None and exchange.method != "initialize":
                exchange.drop(reason)
        elif message.method == "notifications/progress":
            self._on_progress(message.params)
        elif message.method == "notifications/roots/list_changed":
            self.proxy.roots_changed(self)

    def _on_progress(self, params: Any) -> None:
        """The client tells how far it is with a question."""
        try:
            token = jsonrpc.text(jsonrpc.fields(params).get(translate.PROGRESS)) or ""
        except ValueError:
            return
        if (known := self._progress.get(token)) is not None:
            theirs, report = known
            report(jsonrpc.merge(params, {translate.PROGRESS: theirs}))

    # -- questions to the client

    def declared(self, exchange: Exchange | None = None) -> dict[str, Any]:
        """What the client, or the caller of this exchange, says it can."""
        if exchange is not None and exchange.era == "modern":
            return _object(exchange.meta.get(versions.META_CAPABILITIES)) or {}
        return self.capabilities

    def ask(
        self,
        method: str,
        params: Raw | Any,
        answer: Callable[[Message], None],
        exchange: Exchange | None,
        progress: Callable[[Raw], None] | None = None,
    ) -> Id:
        """Ask a legacy client; in the course of `exchange` if it belongs to one. The id it is asked under.

        `progress`: takes what it reports meanwhile, under the token that `params` came with.
        """
        ident = f"foretool-{next(self._ids)}"
        self._questions[ident] = answer
        params, token = translate.replace_token(params, ident if progress is not None else None)
        if token is not None and progress is not None:
            self._progress[ident] = (token, progress)
        data = jsonrpc.encode(Message(id=ident, method=method, params=params))
        if exchange is not None:
            exchange.send(data)
        else:
            self.proxy.outbox.send(self.unasked, data)
        return ident

    def withdraw(self, question: Id, reason: str, exchange: Exchange | None) -> None:
        """Take back what it was asked in the course of `exchange`; its answer is no longer wanted."""
        self._progress.pop(question, None)
        if self._questions.pop(question, None) is None:
            return
        params = jsonrpc.raw({"requestId": question} | ({"reason": reason} if reason else {}))
        data = jsonrpc.notification("notifications/cancelled", params)
        if exchange is not None and not exchange.done:
            exchange.send(data)
        else:
            self.proxy.outbox.send(self.unasked, data)

    def notify_raw(self, message: Message) -> None:
        """A notification of an upstream that is meant for this client, as it is."""
        self.proxy.outbox.send(self.unasked, jsonrpc.encode(message))

    def _answered(self, message: Message) -> None:
        if not isinstance(message.id, int | str):
            return
        self._progress.pop(message.id, None)
        if (question := self._questions.pop(message.id, None)) is not None:
            question(message)

    # -- notifications to the client

    def notify(self, kind: str, method: str, params: dict[str, Any] | None = None, uri: str = "") -> None:
        """`kind`: the name of the filter in `subscriptions/listen`. A legacy client gets it as it is."""
        if (self.transport == "http" and self.era == "modern") or self.listens:
            for exchange, wanted in self.listens.values():
                if uri in wanted.get("resourceSubscriptions", ()) if uri else wanted.get(kind):
                    meta = {"_meta": {versions.META_SUBSCRIPTION: exchange.id}}
                    exchange.send(jsonrpc.notification(method, jsonrpc.raw({**(params or {}), **meta})))
        elif self.era == "legacy" and self.session is not None:
            raw = UNSET if params is None else jsonrpc.raw(params)
            self.proxy.outbox.send(self.unasked, jsonrpc.notification(method, raw))

    def announce(self) -> None:
        """Tell it that its list of tools has changed, and watch whether it lists again."""
        if self.session is None:
            return
        self.notify("toolsListChanged", "notifications/tools/list_changed")
        loop = asyncio.get_running_loop()
        if not self._announced_at:
            self._announced_at = loop.time()
            loop.call_later(RELIST_S, self._not_relisted, self._announced_at)

    def _not_relisted(self, announced_at: float) -> None:
        if self._announced_at == announced_at:
            self._announced_at = 0.0
            self._measured(None)

    def _measured(self, delay_s: float | None) -> None:
        for session in self._sessions.values():
            self.proxy.relisted(session.record, delay_s)
            session.policy = None

    @property
    def is_told(self) -> bool:
        """Whether it was told to list again, and has not yet."""
        return bool(self._announced_at)

    def hold(self, finish: Callable[[], None]) -> None:
        """Keep a result until the client has listed again, at most `hold_ms`."""
        self._held.append(finish)
        asyncio.get_running_loop().call_later(self.proxy.settings.hold_ms / 1000, self._release, finish)

    def _release(self, *which: Callable[[], None]) -> None:
        for finish in which:
            if finish in self._held:
                self._held.remove(finish)
                finish()

    # -- the list of tools

    def policy(self, session: Session) -> Policy:
        if session.policy is None:
            record = session.record
            ledger = self.proxy.ledger(record.client, record.version, record.era)
            session.policy = choose_policy(self.profile.policy, record.era, record.client, ledger)
        return session.policy

    def view(self, session: Session) -> View:
        return self.proxy.exposures.view(self.profile, self.policy(session), self.proxy.unknown_upstreams())

    def array(self, session: Session) -> bytes:
        """The definitions of its list, as JSON."""
        view = self.view(session)
        kept = [tool for tool in session.grown if tool not in view.shown]
        return self.proxy.exposures.grown(view, kept) if kept else view.array

    def is_stale(self) -> bool:
        """Whether a list it was given is no longer the one it would get."""
        given = [session for session in self._sessions.values() if session.view is not None]
        return any(session.view and self.view(session).array != session.view.array for session in given)

    def sees_all(self) -> bool:
        """Whether a list it was given is that of the policy `full`."""
        return any(session.view is not None and session.view.policy == "full" for session in self._sessions.values())

    def list_tools(self, exchange: Exchange) -> None:
        if "cursor" in exchange.params and jsonrpc.text(exchange.params["cursor"]) is not None:
            raise RpcError(jsonrpc.INVALID_PARAMS, "tools/list: unknown cursor; the whole list is one page")
        self.proxy.when_listed(lambda: self.attempt(exchange, Client._answer_list))

    def _answer_list(self, exchange: Exchange) -> None:
        session = exchange.session
        assert session is not None
        self.proxy.catalog.fix_names()
        exchange.result(list_result(self.array(session), exchange.era, TTL_MS))
        self.record_list(session, "list")
        if self._announced_at:
            delay, self._announced_at = asyncio.get_running_loop().time() - self._announced_at, 0.0
            self._measured(delay)
        if self._held:
            asyncio.get_running_loop().call_later(GRACE_S, self._release, *self._held)

    def record_list(self, session: Session, reason: ListReason) -> None:
        """Keep what the client has been given."""
        view = self.view(session)
        if session.view is view and reason == "list":
            return  # the same list again is the same exposure
        grown = tuple(tool for tool in session.grown if tool not in view.shown)
        tokens = view.tokens + sum(self.proxy.catalog.tokens(tool) for tool in grown)
        exposure = Exposure(
            session.record.key, self.proxy.clock(), view.policy, view.epoch, view.tools + grown, tokens, reason
        )
        session.listed(view, self.proxy.recorder.exposure(exposure))

    # -- forwarding to one upstream

    def forward(
        self,
        exchange: Exchange,
        upstream: Upstream,
        params: dict[str, Raw],
        on_reply: OnReply,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a request of the client up. `on_reply` gets what comes back, untranslated, exactly once, with the
        exchange to answer: another one if the client had to be asked in between. `headers`: for an HTTP upstream."""
        legacy = upstream.is_legacy(exchange.era)
        if legacy and "requestState" in params:
            # It had been parked here and is no more; to send the request again could carry it out twice.
            raise RpcError(jsonrpc.INVALID_PARAMS, "requestState has expired; send the request anew")
        token = exchange.progress_token
        exchange.upstream = upstream
        owner = exchange.session or self
        request = Request(exchange.method, params, _unset, owner=owner, exchange=exchange)
        request.build_meta = partial(self.request_meta, exchange)
        request.reply = lambda reply: self._replied(request, upstream, reply, on_reply)
        request.notice = lambda message: self._notice(request, message)
        request.poll = lambda: self._polled(request)
        request.headers = headers
        request.progress = token is not None
        request.timeout = upstream.timeout_s
        exchange.request = request
        upstream.request(exchange.era, request)

    def request_meta(self, exchange: Exchange, era: Era) -> dict[str, Raw] | None:
        """The `_meta` of its request on the way to an upstream of this era."""
        if era == "legacy" and not exchange.meta:
            return None
        info = jsonrpc.raw(self.info or versions.IDENTITY)
        capabilities = jsonrpc.raw(translate.forwardable(self.capabilities))
        meta = translate.request_meta(exchange.meta, exchange.era, era, info, capabilities)
        if meta is not None and era == "modern" and exchange.era == "legacy" and self.log_level:
            meta[versions.META_LOG_LEVEL] = jsonrpc.raw(self.log_level)
        return meta

    def _replied(self, request: Request, upstream: Upstream, reply: Reply, on_reply: OnReply) -> None:
        exchange = request.exchange
        assert isinstance(exchange, Exchange)
        if exchange.done:
            self.proxy.questions.ended(request, lambda at: on_reply(at, reply))
            return
        try:
            if (
                exchange.era == "legacy"
                and isinstance(reply, Message)
                and isinstance(reply.result, Raw)
                and upstream.era_for("legacy") == "modern"
                and translate.input_required(reply.result)
            ):
                self.proxy.questions.mirror(exchange, upstream, request.params, reply.result, on_reply)
            else:
                on_reply(exchange, reply)
        except ValueError as error:
            exchange.error(jsonrpc.INTERNAL_ERROR, f"upstream {upstream.name!r} answered what cannot be read: {error}")
        except Exception:  # as in `attempt`
            log.exception("Failed")
            _failed(exchange)
        finally:
            self.proxy.questions.forget(request)

    def _polled(self, request: Request) -> None:
        if isinstance(exchange := request.exchange, Exchange) and not exchange.done:
            self.proxy.outbox.poll(exchange.channel)

    def _notice(self, request: Request, message: Message) -> None:
        """Progress and logs in the course of a request."""
        exchange = request.exchange
        assert isinstance(exchange, Exchange) and isinstance(message.method, str)
        token = exchange.progress_token
        if message.method == "notifications/progress":
            if token is not None:
                params = jsonrpc.merge(message.params, {translate.PROGRESS: token})
                exchange.send(jsonrpc.notification(message.method, params))
        elif message.method != "notifications/message" or self._wants_log_of(exchange, message):
            exchange.send(jsonrpc.encode(Message(method=message.method, params=message.params)))

    def _wants_log_of(self, exchange: Exchange, message: Message) -> bool:
        """Whether a log entry in the course of a request is for its sender, who chose a level once or with it."""
        if exchange.era == "modern" and versions.META_LOG_LEVEL not in exchange.meta:
            return False
        least = jsonrpc.text(exchange.meta.get(versions.META_LOG_LEVEL)) or self.log_level
        try:
            level = jsonrpc.text(jsonrpc.fields(message.params).get("level")) or ""
        except ValueError:
            return False
        return is_as_severe(level, least)

    def pass_on(self, exchange: Exchange, upstream: Upstream, params: dict[str, Raw]) -> None:
        """Forward, and give the client what comes back."""
        self.forward(exchange, upstream, params, lambda at, reply: self.settle(at, upstream, reply))

    def settle(self, exchange: Exchange, upstream: Upstream, reply: Reply) -> None:
        if isinstance(reply, Lost):
            text = self.proxy.config.redact(lost_text(upstream.name, reply, exchange.method))
            exchange.error(jsonrpc.INTERNAL_ERROR, text)
        elif reply.error is not UNSET:
            exchange.raw_error(translate.error(reply.error, exchange.era))
        else:
            assert isinstance(reply.result, Raw)
            try:
                exchange.result(
                    translate.result(reply.result, exchange.method, exchange.era, upstream.era_for(exchange.era))
                )
            except ValueError:
                exchange.error(jsonrpc.INTERNAL_ERROR, f"upstream {upstream.name!r} answered with no object")

    # -- greetings

    def initialize(self, exchange: Exchange) -> None:
        wanted = jsonrpc.text(exchange.params.get("protocolVersion"))
        if wanted is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, "initialize: protocolVersion is missing")
        version = wanted if wanted in versions.LEGACY_VERSIONS else versions.LATEST_LEGACY
        self.capabilities = _object(exchange.params.get("capabilities")) or {}
        for session in self._sessions.values():
            self.proxy.end_session(session)  # a client that greets anew has begun another conversation
        self._sessions.clear()
        self._introduce(_object(exchange.params.get("clientInfo")) or {}, "legacy")
        exchange.own_result(
            {
                "protocolVersion": version,
                "capabilities": self.proxy.server_capabilities("legacy", self.profile),
                "serverInfo": versions.IDENTITY,
                "instructions": self.proxy.greeting(self.profile),
            }
        )

    def discover_server(self, exchange: Exchange) -> None:
        exchange.own_result(
            {
                "supportedVersions": [*versions.MODERN_VERSIONS, *versions.LEGACY_VERSIONS],
                "capabilities": self.proxy.server_capabilities("modern", self.profile),
                "instructions": self.proxy.greeting(self.profile),
                "ttlMs": TTL_MS,
                "cacheScope": "private",
            }
        )

    def unknown_method(self, exchange: Exchange) -> None:
        exchange.error(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {exchange.method}")

    def ping(self, exchange: Exchange) -> None:
        exchange.result(jsonrpc.EMPTY)

    def call_tool(self, exchange: Exchange) -> None:
        self.proxy.calls.start(exchange)

    def listen(self, exchange: Exchange) -> None:
        """`subscriptions/listen`: stays open until the client cancels it or goes away."""
        wanted = _object(exchange.params.get("notifications"))
        if wanted is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, "subscriptions/listen: notifications must be an object")
        honoured = self.proxy.honoured(wanted)
        self.listens[self._key(exchange.id, exchange.channel)] = (exchange, honoured)
        params = {"_meta": {versions.META_SUBSCRIPTION: exchange.id}, "notifications": honoured}
        exchange.send(jsonrpc.notification("notifications/subscriptions/acknowledged", jsonrpc.raw(params)))
        self.proxy.aggregate.listen(self, honoured.get("resourceSubscriptions", ()))

    def _end_listen(self, exchange: Exchange) -> None:
        """End a subscription from our side (specification: subscriptions, graceful closure)."""
        exchange.own_result({"_meta": {versions.META_SUBSCRIPTION: exchange.id}})
        if self.transport == "stdio":
            params = jsonrpc.raw({"requestId": exchange.id, "reason": "the server ends"})
            self.proxy.outbox.send(exchange.channel, jsonrpc.notification("notifications/cancelled", params))

    def set_level(self, exchange: Exchange) -> None:
        level = jsonrpc.text(exchange.params.get("level"))
        if level not in LEVELS:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"logging/setLevel: level must be one of {', '.join(LEVELS)}")
        self.log_level = level
        self.proxy.set_levels()
        exchange.result(jsonrpc.EMPTY)


def is_as_severe(level: str, least: str) -> bool:
    """Whether a log level is at least as severe as another; unknown ones are let through."""
    return least not in LEVELS or level not in LEVELS or LEVELS.index(level) >= LEVELS.index(least)


def lost_text(upstream: str, lost: Lost, what: str) -> str:
    """Names the upstream, why there is no reply, whether the request had left, and the way out."""
    sent = (
        "it had been sent, so it may have been carried out: check before calling again"
        if lost.sent
        else "it had not been sent: call again"
    )
    return f"upstream {upstream!r} did not answer {what}: {lost.reason}; {sent} (the next call reconnects)"


def _failed(exchange: Exchange) -> None:
    exchange.error(jsonrpc.INTERNAL_ERROR, f"{exchange.method}: a mistake of foretool itself; its log has more")


def _unset(reply: Reply) -> None:
    raise AssertionError("a request was answered before it was sent")


def _object(value: Raw | None) -> dict[str, Any] | None:
    decoded = jsonrpc.plain(value) if value is not None else None
    return decoded if isinstance(decoded, dict) else None


def _aggregate(name: str) -> Handler:
    def handler(client: Client, exchange: Exchange) -> None:
        getattr(client.proxy.aggregate, name)(exchange)

    return handler


_SHARED: Final[dict[str, Handler]] = {
    "tools/list": Client.list_tools,
    "tools/call": Client.call_tool,
    "resources/list": _aggregate("list_resources"),
    "resources/templates/list": _aggregate("list_templates"),
    "resources/read": _aggregate("read_resource"),
    "prompts/list": _aggregate("list_prompts"),
    "prompts/get": _aggregate("get_prompt"),
    "completion/complete": _aggregate("complete"),
}

HANDLERS: Final[dict[Era, dict[str, Handler]]] = {
    "legacy": {
        **_SHARED,
        "initialize": Client.initialize,
        "ping": Client.ping,
        "logging/setLevel": Client.set_level,
        "resources/subscribe": _aggregate("subscribe"),
        "resources/unsubscribe": _aggregate("unsubscribe"),
    },
    "modern": {**_SHARED, "server/discover": Client.discover_server, "subscriptions/listen": Client.listen},
}
"""What each era's clients may ask."""
