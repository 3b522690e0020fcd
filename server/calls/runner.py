"""Runs one call of an upstream's tool: decides what it means, forwards it, records what came of it, answers.

`Session` decides; the outcome is on record before the answer leaves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.server.calls.bridged_calls import explain_misfits
from foretool.server.calls.tool_call import RunningCall, ToolCall, say_failing
from foretool.server.calls.upstream_tasks import UpstreamTasks
from foretool.server.clients.exchange import Caller, Exchange
from foretool.server.clients.session import Forward, Missed, Session, Via
from foretool.server.hints.prediction import Predictor, with_text
from foretool.server.hints.texts import Hint
from foretool.server.methods.forwarder import Forwarder, OnReply
from foretool.server.methods.long_results import LongResults
from foretool.server.methods.schema_fit import find_misfits
from foretool.server.methods.sign_in_links import SignInLinks
from foretool.server.protocol import jsonrpc, translate
from foretool.server.protocol.headers import call_headers
from foretool.server.protocol.jsonrpc import UNSET, Raw
from foretool.server.protocol.output_schemas import described, fit_result
from foretool.server.recording.data_flow import FlowWatch
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.policy import TrustPolicy
from foretool.server.trust.text import one_line
from foretool.server.upstreams.connection import Lost, Reply
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Call, Outcome, Tool

READING_S: Final = 0.02
"""No model reads an answer and writes the next call in this time; a program does, and a client that makes the calls of
one turn of a model one after the other. Such a call is predicted from if its server takes as long."""


class _Attempt(Struct):
    """One call of one tool, from the decision to the record."""

    session: Session
    handle: str
    tool: Tool
    upstream: Upstream
    via: Via
    forward: Forward
    missed: Missed | None
    given: Raw | None
    """Its arguments."""
    arguments: str
    """What may be kept of them."""
    at: float
    started: float
    hint: Hint | None = None
    grew: bool = False
    """The list grew for what comes next, and the client was told."""


class ToolRunner:
    """Carries out the calls that sessions have decided on."""

    def __init__(
        self, upstreams: UpstreamRegistry, forwarder: Forwarder, recorder: Recorder, flows: FlowWatch,
        predictor: Predictor, results: LongResults, links: SignInLinks, tasks: UpstreamTasks,
        policy: TrustPolicy, note_result: Callable[[str, Raw], None], at_end: Callable[[Callable[[], None]], None],
    ) -> None:  # fmt: skip
        """`note_result` takes in the result of an upstream, which may link to its resources. `at_end` runs a callback
        once the requests of this turn have left."""
        self._upstreams = upstreams
        self._forwarder = forwarder
        self._recorder = recorder
        self._flows = flows
        self._predictor = predictor
        self._results = results
        self._links = links
        self._tasks = tasks
        self._policy = policy
        self._note_result = note_result
        self._at_end = at_end

    def run(self, call: ToolCall, tool: Tool) -> None:
        """Forward a call and answer its exchange, once, with what comes back."""
        exchange = call.exchange
        attempt = self._decide(exchange, tool, call.via)
        params = {**exchange.params, "name": jsonrpc.raw(tool.name)}
        # We declare no tasks of this era, so a request to run the call as one is ignored (2025-11-25: basic, tasks).
        params.pop("task", None)
        settle: OnReply = partial(self._settle, attempt)
        if self._tasks.prepare(exchange, attempt.upstream, tool, params):
            settle = partial(self._tasks.follow, attempt.upstream, settle)
        exchange.running = attempt
        exchange.on_drop = partial(self._record_dropped, attempt, exchange.client)
        self._forwarder.forward(
            exchange,
            attempt.upstream,
            params,
            settle,
            call_headers(tool.definition, attempt.given),
        )
        grows = exchange.client.tools.policy(attempt.session.list) == "growing"
        if exchange.is_kept or not self._predictor.is_ready or not (grows or attempt.via == "bridge"):
            return  # what a listed tool answers stays as it is, and no model reads one call of a list
        if attempt.started - (exchange.chat or attempt.session.conversations.whole).answered_at >= READING_S:
            self._at_end(partial(self._look_ahead, exchange, attempt))
        else:
            asyncio.get_running_loop().call_later(READING_S, self._look_ahead, exchange, attempt)

    def describe(self, exchange: Exchange) -> RunningCall | None:
        """Return the call that an upstream runs for an exchange; None if it runs none."""
        attempt = exchange.running
        if isinstance(attempt, RunningCall):
            return attempt
        if not isinstance(attempt, _Attempt):
            return None
        promises = attempt.via == "name" and b'"outputSchema"' in attempt.tool.definition
        return RunningCall(attempt.tool, self._describe(attempt, "lost", True), promises, exchange.task)

    def answer_lost(self, exchange: Exchange, upstream: Upstream, tool: Tool, lost: Lost) -> None:
        """Answer a call whose upstream will send no reply."""
        only_reads = self.only_reads(exchange, tool)
        text = self._forwarder.lost_text(upstream, lost, repr(tool.id), only_reads=only_reads)
        self._links.answer(exchange, upstream, lost, text)

    def only_reads(self, exchange: Exchange, tool: Tool) -> bool:
        """Return whether a tool changes nothing, so that a call of it may be repeated."""
        return self._policy.reach(exchange.client.profile).verdict(tool).risk == "read"

    def _decide(self, exchange: Exchange, tool: Tool, via: Via) -> _Attempt:
        session, at = exchange.own_session, self._recorder.now()
        chat = exchange.chat = session.conversations.place_call(tool.id, exchange.chat)
        missed, forward = session.call(tool, via, at, chat)
        return _Attempt(
            session=session,
            handle=chat.handle if chat else "",
            tool=tool,
            upstream=self._upstreams.serving(tool.upstream, exchange.client.profile),
            via=via,
            forward=forward,
            missed=missed,
            given=exchange.params.get("arguments"),
            arguments=self._recorder.describe_arguments(exchange.params.get("arguments")),
            at=at,
            started=time.perf_counter(),
        )

    def _look_ahead(self, exchange: Exchange, attempt: _Attempt) -> None:
        """Predict what follows this call, and have the list grow for it, now that the request has left: the upstream
        works meanwhile."""
        if exchange.done:
            return
        chat = exchange.chat or attempt.session.conversations.whole
        prediction = self._predictor.predict(chat)
        attempt.grew = exchange.client.tools.grow_for_next(attempt.session.list, prediction)
        if attempt.via == "bridge":
            attempt.hint = self._predictor.hint(exchange.client, attempt.session, chat, prediction)

    def _settle(self, attempt: _Attempt, exchange: Exchange, reply: Reply) -> None:
        if isinstance(reply, Lost):
            self._record(attempt, "lost", reply.sent)
            self.answer_lost(exchange, attempt.upstream, attempt.tool, reply)
            return
        has_failed = reply.error is not UNSET or (
            isinstance(reply.result, Raw) and translate.is_tool_error(reply.result)
        )
        chat, tool = exchange.chat or attempt.session.conversations.whole, attempt.tool.id
        times = chat.count_failures(tool, has_failed=has_failed)
        failing = say_failing(exchange, chat, tool, self._predictor, times) if attempt.via == "bridge" else ""
        doubt = exchange.doubt or (_explain_unseen(attempt, reply.error) if has_failed else "")
        advice = [*filter(None, (doubt, failing))]
        if reply.error is not UNSET:
            self._record(attempt, "error", True)
            if advice and isinstance(reply.error, Raw):
                _, reason = jsonrpc.error_of(reply.error)
                said = "; ".join((reason.rstrip().rstrip("."), *advice))
                reply = replace(reply, error=jsonrpc.merge_members(reply.error, {"message": said}))
        else:
            assert isinstance(reply.result, Raw)
            if not attempt.upstream.is_personal:  # no client gets resources of such a server
                self._note_result(attempt.upstream.name, reply.result)
            self._record(attempt, "tool_error" if has_failed else "ok", True)
            record = attempt.session.record
            if not has_failed:  # the text of an error may quote anything, and what led to it is needed for nothing
                talk = (record.key, attempt.handle)
                self._flows.add(talk, attempt.tool.id, attempt.given, reply.result, record.profile)
            # A result that is kept is cut for whoever asks for it.
            whole = reply.result
            cut = whole if exchange.is_kept else self._results.fit(exchange, attempt.tool, whole)
            result = _fit(attempt, exchange, cut)
            if not has_failed:
                result = _with_misfits(attempt.tool, reply.result, result)
            if has_failed and advice:
                result = with_text(result, "\n".join(advice))
            elif attempt.hint is not None and not has_failed:
                result = self._tell(attempt, exchange, result, attempt.hint)
            if result is not reply.result:
                reply = replace(reply, result=result)
        chat.answered_at = time.perf_counter()
        tools = exchange.client.tools
        if attempt.grew and tools.is_announced:
            tools.hold(lambda: self._forwarder.answer(exchange, attempt.upstream, reply))
        else:
            self._forwarder.answer(exchange, attempt.upstream, reply)

    def _tell(self, attempt: _Attempt, exchange: Exchange, result: Raw, hint: Hint) -> Raw:
        """Return the result with the hint in a last block."""
        told = with_text(result, hint.text)
        if told is not result:
            chat = exchange.chat or attempt.session.conversations.whole
            self._predictor.note_shown(attempt.session, chat, hint)
        return told

    def _record_dropped(self, attempt: _Attempt, client: Caller) -> None:
        self._record(attempt, "lost" if client.is_cut_off else "cancelled", True)

    def _record(self, attempt: _Attempt, outcome: Outcome, sent: bool) -> None:
        settled = attempt.session.settle(attempt.missed)
        self._recorder.call(self._describe(attempt, outcome, sent), settled.revealed)
        self._recorder.settle(settled.new, settled.changed)

    def _describe(self, attempt: _Attempt, outcome: Outcome, sent: bool) -> Call:
        return Call(
            session=attempt.session.record.key,
            at=attempt.at,
            tool=attempt.tool.id,
            upstream=attempt.tool.upstream,
            via=attempt.via,
            hidden=attempt.forward.hidden,
            outcome=outcome,
            took_ms=(time.perf_counter() - attempt.started) * 1000,
            sent=sent,
            arguments=attempt.arguments,
            discovery=attempt.forward.discovery,
            handle=attempt.handle,
        )


def _with_misfits(tool: Tool, answer: Raw, result: Raw) -> Raw:
    """Return the result with a line about what of the server's answer does not fit the tool's output schema."""
    try:
        found = described(answer, tool.definition)
    except ValueError:
        return result
    if found is None or not (misfits := find_misfits(*found)):
        return result
    said = f"foretool: the structured content of this answer does not fit the output schema of {tool.id}"
    return with_text(result, f"{said}: {one_line(misfits)}. It is passed on as its server gave it.")


def _explain_unseen(attempt: _Attempt, error: object) -> str:
    """Return what of the arguments of a failed call does not fit, where the client called a tool by its name that its
    list does not define: its model has never seen the schema."""
    if attempt.via != "name" or not attempt.forward.hidden:
        return ""
    is_invalid = isinstance(error, Raw) and jsonrpc.error_of(error)[0] == jsonrpc.INVALID_PARAMS
    return explain_misfits(attempt.tool, attempt.given or jsonrpc.EMPTY, is_invalid=is_invalid)


def _fit(attempt: _Attempt, exchange: Exchange, result: Raw) -> Raw:
    """Return a result as the definition describes it that the client was given."""
    tool, view, front = attempt.tool, attempt.session.list.view, exchange.era
    was_listed = attempt.via == "name" and view is not None and tool.id in view.shown
    was_narrow = front == "modern" and was_listed and view is not None and tool.id not in view.wide
    return fit_result(result, tool.definition, front, attempt.upstream.era_for(front), was_narrow=was_narrow)
