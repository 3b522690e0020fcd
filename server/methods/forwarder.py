"""Sends a client's request to an upstream and brings back what comes of it: the reply, progress, log entries.

The upstream may be of the other era: `protocol.translate` says which parts of a message belong to one hop only.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from foretool.retrieval.document import cut_at_word
from foretool.server.clients.client import is_as_severe
from foretool.server.clients.exchange import Exchange, Outbox
from foretool.server.config.codes import FOR_THE_USER, Code
from foretool.server.config.loader import LiveConfig
from foretool.server.methods.server_requests import ServerRequests
from foretool.server.protocol import jsonrpc, translate, versions
from foretool.server.protocol.jsonrpc import Message, Raw, RpcError
from foretool.server.transports.upstream.base import LAST_LINE
from foretool.server.trust.policy import NOT_IN_USE
from foretool.server.trust.questions import QuestionRefused, prepare_log, prepare_questions, prepare_sign_in
from foretool.server.trust.text import clean_params
from foretool.server.upstreams.connection import Lost, Reply, Request, ignore_reply
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era

OnReply = Callable[[Exchange, Reply], None]
"""Takes the reply of an upstream and the exchange to answer with it, which may be a retry of the first one."""

_LONGEST_LINE: Final = 200
"""Characters of a server's last line on stderr that a client is told."""

log = logging.getLogger("foretool.forwarder")


class Forwarder:
    """Forwards requests of clients to upstreams."""

    def __init__(self, outbox: Outbox, server_requests: ServerRequests, config: LiveConfig) -> None:
        self._outbox = outbox
        self._server_requests = server_requests
        self._config = config

    def pass_on(self, exchange: Exchange, upstream: Upstream, params: dict[str, Raw]) -> None:
        """Forward a request and answer the client with what comes back."""
        self.forward(exchange, upstream, params, lambda at, reply: self.answer(at, upstream, reply))

    def forward(
        self,
        exchange: Exchange,
        upstream: Upstream,
        params: dict[str, Raw],
        on_reply: OnReply,
        headers: Mapping[str, str] | None = None,
        method: str = "",
    ) -> None:
        """Forward a request. `on_reply` gets the reply, untranslated, exactly once, with the exchange to answer: a
        retry if the client had to be asked in between. `headers`: for an HTTP upstream. `method`: what to ask for, if
        not for what the client did."""
        if "requestState" in params and upstream.era_for(exchange.era) == "legacy":
            # The request was parked here and is no more; to send it again could carry it out twice.
            raise RpcError(jsonrpc.INVALID_PARAMS, "requestState has expired; send the request again without it")
        exchange.upstream = upstream
        owner = exchange.session or exchange.client
        party = exchange.client.party
        request = Request(method or exchange.method, params, _unset, owner=owner, party=party, exchange=exchange)
        request.build_meta = partial(_build_meta, exchange)
        request.reply = lambda reply: self._on_reply(request, upstream, reply, on_reply)
        request.notice = lambda message: _on_notice(request, upstream, message)
        request.wants = lambda method: _wants(request, method)
        request.poll = lambda: self._on_poll(request)
        request.headers = headers
        request.timeout = upstream.timeout_s
        # Whoever reports progress lives, so it is asked for also where the client does not want to hear of it.
        is_limited_call = request.method == "tools/call" and request.timeout > 0
        request.progress = exchange.progress_token is not None or is_limited_call
        exchange.request = request
        upstream.users.add(exchange.client)
        self.send(exchange, upstream, request)

    def tell(self, exchange: Exchange, upstream: Upstream, method: str, params: dict[str, Raw]) -> None:
        """Send a request for a client without waiting for the answer."""
        client = exchange.client
        request = Request(method, params, ignore_reply, owner=exchange.session or client, party=client.party)
        request.build_meta = partial(_build_meta, exchange)
        request.timeout = upstream.timeout_s
        upstream.request(exchange.era, request)

    def send(self, exchange: Exchange, upstream: Upstream, request: Request) -> None:
        """Hand a finished request to its upstream."""
        upstream.request(exchange.era, request)

    def answer(self, exchange: Exchange, upstream: Upstream, reply: Reply) -> None:
        """Answer the client with a reply of an upstream, translated into the client's era."""
        if isinstance(reply, Lost):
            exchange.error(jsonrpc.INTERNAL_ERROR, self.lost_text(upstream, reply, exchange.method))
            return
        try:
            if isinstance(reply.error, Raw):
                self._server_requests.at_addresses.remember_required(upstream, exchange.client, reply.error)
                exchange.raw_error(
                    translate.error(prepare_sign_in(upstream.name, reply.error), exchange.method, exchange.era)
                )
                return
            assert isinstance(reply.result, Raw)
            era = upstream.era_for(exchange.era)
            result = translate.translate_result(reply.result, exchange.method, exchange.era, era)
            if exchange.era == "modern" and translate.input_required(result):
                result = prepare_questions(upstream.name, result)
        except QuestionRefused as error:
            exchange.error(jsonrpc.INTERNAL_ERROR, f"server {upstream.name!r} asked: {error}")
        except ValueError:
            exchange.error(jsonrpc.INTERNAL_ERROR, f"server {upstream.name!r} sent a result that is not an object")
        else:
            exchange.result(result)

    def lost_text(self, upstream: Upstream, lost: Lost, what: str, *, only_reads: bool = False) -> str:
        """Return what a client is told of a reply that will not come, without secrets. `only_reads`: the request
        changes nothing."""
        bearer = upstream.bearer
        if bearer is not None and bearer.asks_for_sign_in(lost.reason):
            return sign_in_text(upstream.name, bearer.problem)
        if upstream.name not in self._config.now.servers:
            return _ended_text(upstream.name, lost, what, only_reads=only_reads)
        # A secret is taken out before the cut, which could leave half of it.
        why, mark, line = self._config.redact(lost.reason).partition(LAST_LINE)
        short = msgspec.structs.replace(lost, reason=f"{why}{mark}{cut_at_word(line, _LONGEST_LINE)}")
        code, has_worked = self._code(upstream, lost), upstream.up_at > 0.0
        text = lost_text(upstream.name, short, what, code, has_worked=has_worked, only_reads=only_reads)
        return self._config.redact(text)

    def _code(self, upstream: Upstream, lost: Lost) -> str:
        """Return the code of what went wrong, "" if it is no matter of the server."""
        if lost.sent and "within" in lost.reason:
            return Code.SERVER_SLOW
        server = self._config.now.servers.get(upstream.name)
        if server is None or lost.reason != upstream.error or upstream.is_personal:
            return ""
        from foretool.server.upstreams.failures import explain_failure  # only a server that fails needs it

        return explain_failure(server, lost.reason, upstream.stderr, skipped_lines=upstream.invalid_lines).code

    def _on_reply(self, request: Request, upstream: Upstream, reply: Reply, on_reply: OnReply) -> None:
        exchange = request.exchange
        assert isinstance(exchange, Exchange)
        if exchange.done:
            self._server_requests.keep_reply(request, lambda at: on_reply(at, reply))
            return
        try:
            if _asks_for_input(exchange, upstream, reply):
                assert isinstance(reply, Message) and isinstance(reply.result, Raw)
                exchange.request = None  # it is over, and the next one comes with the answers
                again = partial(self._repeat, upstream, request.params, on_reply)
                self._server_requests.ask_for_input(exchange, upstream.name, reply.result, again)
            else:
                on_reply(exchange, reply)
        except ValueError as error:
            exchange.error(
                jsonrpc.INTERNAL_ERROR, f"server {upstream.name!r} sent a reply that cannot be read: {error}"
            )
        except Exception as error:  # the boundary of a request, as in `Exchange.attempt`
            log.exception("Failed")
            exchange.fail(error)
        finally:
            self._server_requests.forget(request)

    def _repeat(
        self, upstream: Upstream, params: dict[str, Raw], on_reply: OnReply, exchange: Exchange, more: dict[str, Raw]
    ) -> None:
        """Send the request again with the input that its upstream has asked for."""
        kept = {key: value for key, value in params.items() if key not in ("inputResponses", "requestState")}
        self.forward(exchange, upstream, {**kept, **more}, on_reply)

    def _on_poll(self, request: Request) -> None:
        if isinstance(exchange := request.exchange, Exchange) and not exchange.done:
            self._outbox.poll(exchange.channel)


def lost_text(
    upstream: str, lost: Lost, what: str, code: str = "", *, has_worked: bool = True, only_reads: bool = False
) -> str:
    """Name the server, why there is no reply, whether the request was sent, and the way out. A call is to be repeated
    only where that can help: not while a program is missing, nor if the server has never worked (`has_worked`)."""
    coded = f" [{code}]" if code else ""
    doctor = "tell the user, who can run `foretool doctor`"
    if lost.sent and only_reads:
        way_out = "it had been sent, and it only reads: call again"
    elif lost.sent:
        way_out = "it had been sent, so it may have been carried out: check before calling again"
    elif code in FOR_THE_USER:
        way_out = f"it had not been sent, and calling again does not help: {doctor}"
    elif not has_worked:
        way_out = f"it had not been sent, and the server has not worked yet: {doctor}"
    else:
        way_out = "it had not been sent: call again (the next call reconnects)"
    if lost.is_unread:
        return f"the answer of server {upstream!r} to {what} was not read: {lost.reason}{coded}; {way_out}"
    return f"server {upstream!r} did not answer {what}: {lost.reason}{coded}; {way_out}"


def _ended_text(upstream: str, lost: Lost, what: str, *, only_reads: bool) -> str:
    """Say that a server was taken out of use while a request was under way."""
    sent = "it had been sent" if lost.sent else "it had not been sent"
    doubt = ", so it may have been carried out" if lost.sent and not only_reads else ""
    return f"server {upstream!r} did not answer {what}: it {NOT_IN_USE}; {sent}{doubt}"


def sign_in_text(upstream: str, problem: str) -> str:
    """Say that a person has to sign in, and what to do then."""
    command = f"`foretool login {shlex.quote(upstream)}`"
    return (
        f"server {upstream!r} {problem}. Ask the user to run {command} in a terminal, then call again. [{Code.SIGN_IN}]"
    )


def _build_meta(exchange: Exchange, era: Era) -> dict[str, Raw] | None:
    """Return the `_meta` of a client's request on its way to an upstream of this era."""
    if era == "legacy" and not exchange.meta:
        return None
    client = exchange.client
    info = jsonrpc.raw(client.info or versions.IDENTITY)
    capabilities = jsonrpc.raw(translate.forwardable(client.capabilities))
    meta = translate.request_meta(exchange.meta, exchange.era, era, info, capabilities)
    if meta is not None and era == "modern" and exchange.era == "legacy" and client.log_level:
        meta[versions.META_LOG_LEVEL] = jsonrpc.raw(client.log_level)
    if meta is not None and era == "modern" and exchange.takes_task:
        translate.declare_tasks(meta)
    return meta


def _asks_for_input(exchange: Exchange, upstream: Upstream, reply: Reply) -> bool:
    """Return whether a modern upstream's reply asks a legacy client for input."""
    return (
        exchange.era == "legacy"
        and isinstance(reply, Message)
        and isinstance(reply.result, Raw)
        and upstream.era_for("legacy") == "modern"
        and translate.input_required(reply.result)
    )


def _wants(request: Request, method: str) -> bool:
    """Return whether a client wants notifications of a method in the course of its request: every call is asked for
    progress, and most clients ask for none."""
    exchange = request.exchange
    assert isinstance(exchange, Exchange)
    if method == "notifications/progress":
        return exchange.progress_token is not None
    return exchange.era == "legacy" or versions.META_LOG_LEVEL in exchange.meta


def _on_notice(request: Request, upstream: Upstream, message: Message) -> None:
    """Pass on progress and log entries that come in the course of a request."""
    exchange = request.exchange
    assert isinstance(exchange, Exchange) and isinstance(message.method, str)
    try:
        message.params = clean_params(message.params)
    except ValueError:
        return
    if message.method == "notifications/progress":
        if (token := exchange.progress_token) is not None:
            params = jsonrpc.merge_members(message.params, {translate.PROGRESS: token})
            exchange.send(jsonrpc.notification(message.method, params))
    elif message.method == "notifications/message" and _wants_log_of(exchange, message):
        exchange.send(jsonrpc.notification(message.method, prepare_log(upstream.name, message.params)))


def _wants_log_of(exchange: Exchange, message: Message) -> bool:
    """Return whether the sender of a request wants a log entry that came in its course."""
    least = jsonrpc.text(exchange.meta.get(versions.META_LOG_LEVEL)) or exchange.client.log_level
    try:
        level = jsonrpc.text(jsonrpc.fields(message.params).get("level")) or ""
    except ValueError:
        return False
    return is_as_severe(level, least)


def _unset(reply: Reply) -> None:
    raise AssertionError("a request was answered before it was sent")
