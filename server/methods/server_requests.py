"""Requests of upstreams to clients (sampling, elicitation, roots): which client they are for, and how each era asks it.

A legacy client is asked by a request. A modern client is asked by ending its request with `input_required`; the
upstream's request is parked meanwhile, and the client's retry continues it. The other way round, a modern upstream's
`input_required` becomes requests to a legacy client, and a retry of ours carries the answers up.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct, field

from foretool.server.clients.client import Client
from foretool.server.clients.exchange import Caller, Exchange
from foretool.server.config.loader import Profile
from foretool.server.methods.question_limit import QuestionLimit
from foretool.server.protocol import jsonrpc, translate
from foretool.server.protocol.jsonrpc import UNSET, Id, Message, Raw
from foretool.server.trust.questions import QuestionRefused, prepare_question, prepare_request, questions_of
from foretool.server.trust.text import clean_params
from foretool.server.upstreams.connection import Request, answer_error
from foretool.server.upstreams.question_clock import QUESTION_S, decoded_members
from foretool.server.upstreams.upstream import Upstream

_CAPABILITY: Final = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
"""What a client must have declared to be asked."""

PARKED_S: Final = QUESTION_S
MOST_PARKED: Final = 1000
_ROUNDS: Final = 10
"""How often one request may ask for input before it is given up."""

Answer = Callable[[Message], None]
"""Says something to the upstream that asked."""
Answered = Callable[[Exchange, Message], None]
"""Takes the exchange to go on with, and the answer."""
Ended = Callable[[Exchange], None]


class _Parked(Struct, eq=False):
    """A request of an upstream that waits for the client to come back with answers."""

    request: Request
    upstream: Upstream
    handle: str
    until: float
    open: dict[str, tuple[Message, Answer]] = field(default_factory=dict)
    """Questions by the key under which the client answers them."""
    ended: Ended | None = None
    """Gives the client what the upstream has said without waiting for its answers."""


class _Own(Struct, eq=False):
    """A question of ours, put to a modern client by ending its request."""

    exchange: Exchange
    answered: Callable[[Exchange, dict[str, Raw]], None]
    """Takes the answers by the keys of the questions."""
    until: float


class AddressElicitations:
    """Keeps which clients were sent to a URL and have not finished there (legacy era)."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, list[Caller]]] = {}
        """By the id of an elicitation: the upstream that sent clients to a URL, and the clients."""

    def belongs_to(self, elicitation: str | None, upstream: str) -> bool:
        """Return whether an upstream may use this id. Clients know an elicitation by it alone, so one upstream could
        end that of another."""
        return self._open.get(elicitation or "", (upstream, None))[0] == upstream

    def remember_required(self, upstream: Upstream, client: Caller, error: Raw) -> None:
        """Remember a client for the addresses that an error names as required (URL elicitation required)."""
        if jsonrpc.error_of(error)[0] != jsonrpc.URL_ELICITATION_REQUIRED or client.era != "legacy":
            return
        having = client.declared().get("elicitation")
        if not isinstance(having, dict) or "url" not in modes(having):
            return
        data = decoded_members(error).get("data")
        asked = data.get("elicitations") if isinstance(data, dict) else None
        for elicitation in asked if isinstance(asked, list) else ():
            ident = elicitation.get("elicitationId") if isinstance(elicitation, dict) else None
            if isinstance(ident, str):
                self.remember(ident, upstream.key, client)

    def remember(self, elicitation: str, upstream: str, client: Caller) -> None:
        """Remember which client was sent to a URL, to tell it when the upstream says that it is through."""
        sender, clients = self._open.setdefault(elicitation, (upstream, []))
        if sender == upstream and client not in clients:
            clients.append(client)
        if len(self._open) > MOST_PARKED:
            # One upstream may name very many, and must not displace those of the others.
            del self._open[next(each for each, (whose, _) in self._open.items() if whose == sender)]

    def complete(self, upstream: str, message: Message, elicitation: str) -> None:
        """Tell the clients that an upstream sent to a URL that they are through there."""
        sender, clients = self._open.get(elicitation, ("", []))
        if sender != upstream:
            return
        del self._open[elicitation]
        for client in clients:
            if client.era == "legacy":
                client.notify_raw(message)


class ServerRequests:
    """Puts questions of upstreams, and foretool's own, to clients, and brings back the answers."""

    def __init__(
        self, only_client: Callable[[], Client | None], admits: Callable[[Profile, str], bool],
        are_apart: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """`only_client`: returns the client if there is exactly one. `admits`: whether a profile has an upstream.
        `are_apart`: whether clients work in folders that a server would mix up."""
        self._are_apart = are_apart
        self.working_in_roots: set[str] = set()
        """Upstreams that were told the roots of a client: they work in its folders from then on."""
        self.without_roots: set[str] = set()
        """Upstreams that asked for the roots of a client and were not told, as their clients are apart."""
        self._only_client = only_client
        self._admits = admits
        self._limit = QuestionLimit()
        self._parked: dict[str, _Parked] = {}
        self._by_request: dict[Request, _Parked] = {}
        self._own: dict[str, _Own] = {}
        self._asked: dict[tuple[str, Id], Callable[[str], None]] = {}
        """By upstream and its id: takes a question back from the legacy client it was put to."""
        self.at_addresses = AddressElicitations()

    def on_request(self, upstream: Upstream, message: Message, request: Request | None, answer: Answer) -> None:
        """Put a request of a legacy upstream to the client it is for. `request`: in whose course it came, if known."""
        # Two open questions with one id: an answer to the first would be taken for one to the second.
        self.withdraw(upstream, message.id, "its server asks something else by the same id")
        admitted = self._limit.admit(upstream.key, message, request, answer)
        if admitted is None:
            return
        answer = admitted
        try:
            message.params = clean_params(message.params)
        except ValueError as error:
            answer(answer_error(_id(message), jsonrpc.INVALID_PARAMS, f"{message.method}: {error}"))
            return
        exchange = request.exchange if request is not None else None
        in_course = exchange if isinstance(exchange, Exchange) else None
        client = exchange.client if isinstance(exchange, Exchange) else self._only_client()
        # A modern client can be asked in the course of a request alone.
        if client is None or (in_course is None and not self._may_ask_unasked(upstream, client, str(message.method))):
            answer(answer_error(_id(message), jsonrpc.METHOD_NOT_FOUND, _say_unclear(upstream, message)))
        elif (refused := refusal(str(message.method), message.params, client.declared(in_course))) is not None:
            answer(answer_error(_id(message), *refused))
        elif message.method == "roots/list" and self._are_apart():
            self.without_roots.add(upstream.name)
            why = f"{message.method}: windows of several folders, or several people, share this server"
            answer(answer_error(_id(message), jsonrpc.METHOD_NOT_FOUND, why))
        elif problem := self._prepare(upstream, message):
            answer(answer_error(_id(message), jsonrpc.INVALID_PARAMS, problem))
        else:
            if message.method == "roots/list":
                self.working_in_roots.add(upstream.name)
            self._put(client, in_course, request, upstream, message, answer)

    def _put(
        self, client: Caller, in_course: Exchange | None, request: Request | None, upstream: Upstream,
        message: Message, answer: Answer,
    ) -> None:  # fmt: skip
        """Put a question to a client as its era does."""
        if in_course is not None and request is not None and in_course.era == "modern":
            self._park(in_course, request, upstream, message, answer)
        else:
            self._ask_legacy(client, request if in_course else None, upstream, message, answer)

    def _prepare(self, upstream: Upstream, message: Message) -> str:
        """Let a question name its upstream; return why it must not be asked, or ""."""
        try:
            message.params = prepare_question(upstream.name, str(message.method), message.params)
            elicitation = _elicitation(message.params)
        except ValueError as error:
            return str(error)
        is_its_own = self.at_addresses.belongs_to(elicitation, upstream.key)
        return "" if is_its_own else f"{message.method}: the elicitationId is in use"

    def _ask_legacy(
        self, client: Caller, request: Request | None, upstream: Upstream, message: Message, answer: Answer
    ) -> None:
        exchange = request.exchange if request is not None else None
        assert exchange is None or isinstance(exchange, Exchange)
        key = (upstream.key, _id(message))

        def answered(reply: Message) -> None:
            self._asked.pop(key, None)
            answer(_readdress(reply, message))

        def progress(params: Raw) -> None:
            # What the client reports under the token it was given, under the one that the upstream gave.
            answer(Message(method="notifications/progress", params=params))

        ident = client.ask(str(message.method), message.params, answered, exchange, progress)

        self._asked[key] = lambda reason: client.withdraw(ident, reason, exchange)
        if (elicitation := _elicitation(message.params)) is not None:
            self.at_addresses.remember(elicitation, upstream.key, client)

    def _may_ask_unasked(self, upstream: Upstream, client: Caller, method: str) -> bool:
        """Return whether an upstream may ask a client in the course of no request; a modern one is never asked so.
        What is shown to a user may be about the work of somebody who has left; roots show nothing."""
        is_theirs = method == "roots/list" or upstream.lines.parties() <= {client.party}
        return client.era == "legacy" and self._admits(client.profile, upstream.name) and is_theirs

    def withdraw(self, upstream: Upstream, question: Any, reason: str) -> None:
        """Take back a question that a legacy upstream has cancelled."""
        if not isinstance(question, int | str):
            return
        self._limit.close(upstream.key, question)
        take_back = self._asked.pop((upstream.key, question), None)
        if take_back is not None:
            take_back(reason)
        for parked in self._parked.values():
            if parked.upstream is upstream:
                parked.open = {key: each for key, each in parked.open.items() if each[0].id != question}

    # -- legacy upstream, modern client

    def _park(self, exchange: Exchange, request: Request, upstream: Upstream, message: Message, answer: Answer) -> None:
        parked = self._by_request.get(request)
        if parked is None:
            if len(self._parked) >= MOST_PARKED:
                answer(answer_error(_id(message), jsonrpc.INTERNAL_ERROR, "too many requests wait for input"))
                return
            parked = _Parked(request, upstream, f"foretool-{os.urandom(16).hex()}", 0.0)
            self._parked[parked.handle] = self._by_request[request] = parked
        parked.until = time.monotonic() + PARKED_S
        parked.open[f"q{len(parked.open) + 1}-{os.urandom(4).hex()}"] = (message, answer)
        self._ask_parked(exchange, parked)

    def _ask_parked(self, exchange: Exchange, parked: _Parked) -> None:
        if exchange.done:
            return  # more questions before the client came back: they are asked with its retry
        requests = {
            key: {"method": message.method}
            | ({} if message.params is UNSET else {"params": translate.replace_token(message.params, None)[0]})
            for key, (message, _) in parked.open.items()
        }
        exchange.own_result({"resultType": "input_required", "inputRequests": requests, "requestState": parked.handle})

    def resume(self, exchange: Exchange) -> bool:
        """Give the answers of a retry to the upstream that waits; return False if the state is not ours."""
        handle = jsonrpc.text(exchange.params.get("requestState")) or ""
        if (own := self._own.get(handle)) is not None:
            self._resume_own(handle, own, exchange)
            return True
        parked = self._parked.get(handle)
        if parked is None:
            return False
        before = parked.request.exchange
        if not isinstance(before, Exchange) or before.client is not exchange.client or before.method != exchange.method:
            exchange.error(jsonrpc.INVALID_PARAMS, "requestState does not belong to this request")
            return True
        if parked.ended is not None:
            self.forget(parked.request)
            parked.ended(exchange)
            return True
        exchange.request, exchange.upstream = parked.request, parked.upstream
        exchange.on_drop, exchange.running = before.on_drop, before.running
        parked.request.exchange = exchange
        if not before.done:
            before.error(jsonrpc.INVALID_PARAMS, "a later retry of this request has taken its place")
        responses = jsonrpc.fields(exchange.params.get("inputResponses", UNSET))
        for key in [key for key in parked.open if key in responses]:
            message, answer = parked.open.pop(key)
            answer(Message(id=_id(message), result=responses[key]))
        if parked.open:
            self._ask_parked(exchange, parked)
        return True

    def keep_reply(self, request: Request, ended: Ended) -> None:
        """Keep the reply of an upstream that did not wait for answers; the client gets it when it comes back."""
        parked = self._by_request.get(request)
        if parked is not None:
            parked.ended = ended
            parked.open.clear()

    def forget(self, request: Request) -> None:
        """Drop what waits for a request that is over or whose client does not come back."""
        parked = self._by_request.pop(request, None) if self._by_request else None
        if parked is not None:
            self._parked.pop(parked.handle, None)

    def expire(self) -> None:
        """Cancel parked requests nobody came back for; called about once a second."""
        now = time.monotonic()
        for parked in [each for each in self._parked.values() if each.until < now]:
            exchange = parked.request.exchange
            if isinstance(exchange, Exchange) and not exchange.done:
                continue  # its client has come back, and waits for the upstream
            self._give_up(parked, "nobody answered its questions")
        for handle in [handle for handle, own in self._own.items() if own.until < now]:
            self._give_up_own(handle)

    def drop_client(self, client: Caller) -> None:
        """Cancel the parked requests of a client that has gone."""
        for parked in list(self._parked.values()):
            if isinstance(exchange := parked.request.exchange, Exchange) and exchange.client is client:
                self._give_up(parked, "its client has gone")

    def _give_up(self, parked: _Parked, reason: str) -> None:
        """Cancel a parked request. What it was is on record all the same."""
        exchange = parked.request.exchange
        self.forget(parked.request)
        if parked.ended is not None and isinstance(exchange, Exchange):
            parked.ended(exchange)
            return
        parked.upstream.cancel(parked.request, reason)
        parked.request.drop_callbacks()
        if isinstance(exchange, Exchange) and exchange.on_drop is not None:
            exchange.on_drop()

    # -- our own questions

    def ask_client(self, exchange: Exchange, method: str, params: Raw, answered: Answered) -> None:
        """Ask the client of an exchange a question of ours, in the way of its era."""
        if exchange.era == "legacy":
            exchange.client.ask(method, params, lambda reply: answered(exchange, reply), exchange)
            return

        def take(at: Exchange, answers: dict[str, Raw]) -> None:
            answered(at, Message(id=0, result=answers.get("answer", jsonrpc.EMPTY)))

        self._ask_modern(exchange, {"answer": {"method": method, "params": params}}, take)

    def _ask_modern(
        self, exchange: Exchange, requests: Mapping[str, Any], answered: Callable[[Exchange, dict[str, Raw]], None]
    ) -> None:
        """End the request of a modern client with questions; `answered` takes its retry."""
        handle = f"foretool-{os.urandom(16).hex()}"
        self._own[handle] = _Own(exchange, answered, time.monotonic() + PARKED_S)
        if len(self._own) > MOST_PARKED:
            self._give_up_own(next(iter(self._own)))
        exchange.own_result({"resultType": "input_required", "inputRequests": requests, "requestState": handle})

    def _give_up_own(self, handle: str) -> None:
        """Forget a question of which nobody brings the answer, and end what waits for it."""
        exchange = self._own.pop(handle).exchange
        if exchange.task and exchange.on_drop is not None:
            exchange.on_drop()

    def _resume_own(self, handle: str, own: _Own, exchange: Exchange) -> None:
        # Callers of the modern era share a client over HTTP; each has its own session.
        if own.exchange.session is not exchange.session or own.exchange.method != exchange.method:
            exchange.error(jsonrpc.INVALID_PARAMS, "requestState does not belong to this request")
            return
        del self._own[handle]  # an answer counts once
        responses = jsonrpc.fields(exchange.params.get("inputResponses", UNSET))
        own.answered(exchange, responses)

    # -- modern upstream, legacy client

    def ask_for_input(
        self, exchange: Exchange, upstream: str, result: Raw, again: Callable[[Exchange, dict[str, Raw]], None]
    ) -> None:
        """Ask a client for the input that a modern upstream wants. `again` takes the exchange to go on with, the
        answers, and the state that the upstream gave."""
        members = jsonrpc.fields(result)
        exchange.rounds += 1
        if exchange.rounds > _ROUNDS:
            exchange.error(jsonrpc.INTERNAL_ERROR, f"server {upstream!r} asked for input {_ROUNDS} times")
            return
        try:
            wanted = _read_questions(upstream, members, exchange.client.declared(exchange))
        except ValueError as error:
            exchange.error(jsonrpc.INTERNAL_ERROR, f"server {upstream!r} asked: {error}")
            return
        answers: dict[str, Raw] = {}

        def retry() -> None:
            more = {"inputResponses": jsonrpc.raw(answers)} if answers else {}
            if "requestState" in members:
                more["requestState"] = members["requestState"]
            again(exchange, more)

        def answered(key: str, reply: Message) -> None:
            if exchange.done:
                return
            if reply.result is UNSET:
                code, reason = jsonrpc.error_of(reply.error) if reply.error is not UNSET else (0, "no answer")
                exchange.error(code or jsonrpc.INTERNAL_ERROR, f"the client did not answer: {reason}")
                return
            assert isinstance(reply.result, Raw)
            answers[key] = reply.result
            if len(answers) == len(wanted):
                retry()

        if exchange.era == "modern":
            self._ask_modern(exchange, wanted, lambda at, given: again(at, {"inputResponses": jsonrpc.raw(given)}))
            return
        if not wanted:
            retry()
        for key, request in wanted.items():
            method = jsonrpc.text(request["method"]) or ""
            params_of: Any = request.get("params", UNSET)
            exchange.client.ask(method, params_of, lambda reply, key=key: answered(key, reply), exchange)  # type: ignore[misc]


def _read_questions(
    upstream: str, members: Mapping[str, Raw], declared: Mapping[str, Any]
) -> dict[str, dict[str, Raw]]:
    """Return the questions of a result that asks for input, as a client gets them. Raises ValueError, which says why
    one of them must not be put to a client with these capabilities."""
    asked = jsonrpc.fields(clean_params(jsonrpc.raw(questions_of(members))))
    wanted = {key: jsonrpc.fields(value) for key, value in asked.items()}
    for request in wanted.values():
        refused = refusal(jsonrpc.text(request.get("method")) or "", request.get("params", UNSET), declared)
        if refused is not None:
            raise QuestionRefused(refused[1])
    return {key: prepare_request(upstream, request) for key, request in wanted.items()}


def _say_unclear(upstream: Upstream, message: Message) -> str:
    """Say why nobody can be asked: what a server asks on its standard output belongs to no call."""
    what = f"{message.method}: it cannot be told which client is meant"
    if doubt_s := upstream.lines.doubt_s():
        why = "a call that another client has cancelled, or that timed out, may still run in this server"
        return f"{what}, because {why}; call again in {math.ceil(doubt_s)} s"
    if upstream.in_flight < 2:
        return what
    return f"{what}, because calls of several run in this server; call again when the others have ended"


def refusal(method: str, params: Any, declared: Mapping[str, Any]) -> tuple[int, str] | None:
    """Return code and words for a request that a client with these capabilities must not be sent (specification
    2025-11-25: client, elicitation and sampling); None when it may be sent."""
    capability = _CAPABILITY.get(method)
    having = declared.get(capability) if capability is not None else None
    if not isinstance(having, dict):
        lacks = f": it did not declare {capability}" if capability is not None else ""
        return jsonrpc.METHOD_NOT_FOUND, f"{method} is not supported by the client{lacks}"
    try:
        given = jsonrpc.fields(params)
        mode = jsonrpc.text(given.get("mode")) or "form"
    except ValueError:
        return None  # the client will say what is wrong with it
    if capability == "elicitation" and mode not in modes(having):
        return jsonrpc.INVALID_PARAMS, f"{method}: the client did not declare elicitation.{mode}"
    if capability == "sampling" and {"tools", "toolChoice"} & given.keys() and "tools" not in having:
        return jsonrpc.INVALID_PARAMS, f"{method}: the client did not declare sampling.tools"
    return None


def modes(elicitation: Mapping[str, Any]) -> set[str]:
    """Return how a client with this capability can be asked; without a mode by forms, the first mode there was."""
    return {"form", "url"} & elicitation.keys() or {"form"}


def _id(message: Message) -> Any:
    return message.id


def _elicitation(params: Any) -> str | None:
    """Return the id of an elicitation by URL."""
    try:
        return jsonrpc.text(jsonrpc.fields(params).get("elicitationId"))
    except ValueError:
        return None


def _readdress(reply: Message, question: Message) -> Message:
    """Return the client's reply under the id that the upstream asked with."""
    return Message(id=_id(question), result=reply.result, error=reply.error)
