"""Answers `tools/call`: our own tools, and every other tool by its name or through one of our two bridges.

`call_tool` runs what is read-only or what a rule allows, and `call_tool_write` everything. Both repair arguments whose
meaning is plain. Tools that are called by their own names get them as they were written. The way of a call is told in
the docstring of this room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from foretool.server.calls.admission import Admission, Confirmation
from foretool.server.calls.bridged_calls import BridgedCall, fit_arguments, open_object, read_call
from foretool.server.calls.client_tasks import ClientTasks
from foretool.server.calls.kept_calls import KeptCalls
from foretool.server.calls.long_calls import LongCalls
from foretool.server.calls.lookup import ToolLookup
from foretool.server.calls.runner import ToolRunner
from foretool.server.calls.series import CallSeries
from foretool.server.calls.tool_call import Refusal, ToolCall, Wait, finder_of, say_failing
from foretool.server.calls.upstream_tasks import UpstreamTasks
from foretool.server.catalog.names import CALL, CALL_RESULT, CALL_TOOLS, CALL_WRITE, CONNECT, DISCOVER, READ_MORE
from foretool.server.clients.exchange import Exchange
from foretool.server.clients.session import Missed
from foretool.server.config.loader import LiveConfig
from foretool.server.discovery.arguments import MOST_NAME
from foretool.server.discovery.discover_tools import DiscoverTools
from foretool.server.hints.prediction import Predictor
from foretool.server.knowledge import Knowledge
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.long_results import LongResults
from foretool.server.methods.server_requests import ServerRequests
from foretool.server.methods.sign_in_links import SignInLinks
from foretool.server.parties import Parties
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw, RpcError
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.policy import BridgeName, Confirm, TrustPolicy
from foretool.server.upstreams.connection import Reply
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era, Miss, Tool, ToolId
from foretool.storage.store import Store

_BRIDGES: Mapping[str, BridgeName] = {CALL: "call_tool", CALL_WRITE: "call_tool_write"}

OwnTool = Callable[[Exchange, Raw], None]


class ToolCalls:
    """Takes each call to whoever answers it, step by step."""

    def __init__(
        self, discover: DiscoverTools, lookup: ToolLookup, admission: Admission, confirmation: Confirmation,
        runner: ToolRunner, predictor: Predictor, results: LongResults, long_calls: LongCalls,
        tasks: ClientTasks, connect: OwnTool, recorder: Recorder,
        links: SignInLinks,
    ) -> None:  # fmt: skip
        self._discover = discover
        self._lookup = lookup
        self._admission = admission
        self._confirmation = confirmation
        self._runner = runner
        self._predictor = predictor
        self._recorder = recorder
        self.long_calls = long_calls
        self._tasks = tasks
        self._series = CallSeries(lookup, admission, confirmation, results, self._find, self._refuse)
        self._links = links
        self._own: Mapping[str, OwnTool] = {
            DISCOVER: discover.start,
            READ_MORE: results.read_more,
            CALL_RESULT: long_calls.answer,
            CONNECT: connect,
        }

    def handlers(self, era: Era) -> dict[str, Any]:
        return {"tools/call": self.start, **self._tasks.handlers(era)}

    def start(self, exchange: Exchange) -> None:
        """Answer one `tools/call`. Raises `RpcError` for a request that is wrong in itself."""
        name = jsonrpc.text(exchange.params.get("name"))
        if name is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, "tools/call: name is missing")
        if len(name) > MOST_NAME:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"tools/call: {_too_long(exchange, name)}")
        shown = exchange.own_session.list
        exchange.client.tools.note_caller(shown, exchange.meta)
        if (own := self._find_own(exchange, name)) is not None:
            own(exchange, open_object(exchange.params.get("arguments", jsonrpc.EMPTY)))
        elif (bridge := _BRIDGES.get(name)) is not None:
            self._unwrap(exchange, bridge)
        elif exchange.client.is_shell:
            # A shell has read no schema, and writes each value as text: its arguments are read like a model's.
            given = exchange.params.get("arguments", jsonrpc.EMPTY)
            self._find(ToolCall(exchange, name, "name", BridgedCall(name, "", given, {})))
        else:
            self._find(ToolCall(exchange, name, "page" if shown.shows_pages else "name"))

    def _find_own(self, exchange: Exchange, name: str) -> OwnTool | None:
        """Return what answers a tool of ours that this client has."""
        if name == CALL_TOOLS:
            return self._series.start if self._admission.reach(exchange).offers_call_tools else None
        return self._own.get(name)

    def _unwrap(self, exchange: Exchange, bridge: BridgeName) -> None:
        """Take a call out of a bridge."""
        written = read_call(open_object(exchange.params.get("arguments", jsonrpc.EMPTY)))
        if not written.name:
            fitting = " or ".join(self._lookup.fitting(exchange, written))
            meant = f", such as {fitting}" if fitting else ""
            exchange.tool_error(f'{bridge}: "name" is missing; say which tool to call{meant}')
        elif len(written.name) > MOST_NAME:
            exchange.tool_error(f"{bridge}: {_too_long(exchange, written.name)}")
        elif written.name in _BRIDGES:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{bridge} cannot call {written.name}; name the tool to call")
        elif (own := self._find_own(exchange, written.name)) is not None:
            own(exchange, written.own_arguments)
        else:
            self._discover.join_conversation(exchange, written.handle)
            kept = {key: value for key, value in exchange.params.items() if key not in ("name", "arguments")}
            exchange.params = {**kept, "arguments": written.given or jsonrpc.EMPTY}
            self._find(ToolCall(exchange, written.name, bridge, written))

    def _find(self, call: ToolCall) -> None:
        """Look up the tool of a call, now or once more is known of the tools."""
        tool = self._lookup.find(call)
        if isinstance(tool, Wait):
            tool.until(lambda: call.exchange.attempt(self._find, call))
        elif isinstance(tool, Refusal):
            self._refuse(call, tool)
        else:
            self._admit(call, tool)

    def _admit(self, call: ToolCall, tool: Tool) -> None:
        """Run a call if the rules, the schema of its tool and the user allow it. A refused call does not learn the
        schema, and nobody is asked about a call that cannot run."""
        conversations = call.exchange.own_session.conversations
        chat = conversations.place_call(tool.id, call.exchange.chat) or conversations.whole
        if call.asked != "page":
            chat.note_try(tool.id)
        decision = self._admission.decide(call, tool)
        if isinstance(decision, Refusal):
            self._refuse(call, decision)
            return
        if problem := _fit(call, tool):
            times = chat.count_failures(tool.id, has_failed=True)
            failing = say_failing(call.exchange, chat, tool.id, self._predictor, times, is_misfit=True)
            text = f"{problem}\n{failing}" if failing else problem
            self._refuse(call, self._admission.give_up(call, tool, text))
        elif isinstance(decision, Confirm):
            self._ask(call, tool, decision)
        else:
            self._runner.run(call, tool)

    def _ask(self, call: ToolCall, tool: Tool, question: Confirm) -> None:
        """Ask the user about a call, and go on with the answer: its tool may be gone or held by now."""

        def go_on(exchange: Exchange, agreed: bool) -> None:
            call.exchange = exchange
            refusal = self._admission.take_answer(call, tool, agreed=agreed)
            if refusal is not None:
                self._refuse(call, refusal)
            else:
                self._find(call)

        self._confirmation.ask(call.exchange, tool, question.verdict, go_on)

    def _refuse(self, call: ToolCall, refusal: Refusal) -> None:
        """Record a call that does not run, and say why: a call by name of a tool that is unknown gets a protocol error
        (specification: tools), every other a text for the model."""
        session, missed = call.exchange.own_session, refusal.missed
        settled = session.settle(missed if isinstance(missed, Missed) else None)
        if refusal.record is not None:
            self._recorder.call(refusal.record, settled.revealed)
        if refusal.audited is not None:
            self._recorder.audit(refusal.audited)
        if isinstance(missed, Miss) and session.has_list:
            self._recorder.miss(missed)
        self._recorder.settle(settled.new, settled.changed)
        if refusal.unreachable is not None:
            self._links.answer(call.exchange, *refusal.unreachable, refusal.text)
        elif refusal.is_unknown and call.via == "name":
            call.exchange.error(jsonrpc.INVALID_PARAMS, refusal.text)
        elif refusal.is_made_up:
            name, chat = ToolId(call.name), call.exchange.chat or session.conversations.whole
            advice = say_failing(call.exchange, chat, name, self._predictor, chat.count_failures(name, has_failed=True))
            text = f"{refusal.text}\n{advice}" if advice else refusal.text
            self._discover.search_for_name(call.exchange, call.name, text)
        else:
            call.exchange.tool_error(refusal.text)


def _fit(call: ToolCall, tool: Tool) -> str:
    """Take the arguments of a bridged call as the schema of its tool has them. Return why no server would accept them,
    "" if one may."""
    if call.written is None:
        return ""
    fitted = fit_arguments(call.written, tool)
    if not fitted.refusal:
        call.exchange.params["arguments"] = fitted.arguments
        call.exchange.doubt = fitted.doubt
    return fitted.refusal


def _too_long(exchange: Exchange, name: str) -> str:
    found = f"expected a name of at most {MOST_NAME} characters, found {len(name):,}"
    return f"{found}; {finder_of(exchange)} finds tools by task"


def make_tool_calls(
    live: LiveConfig, policy: TrustPolicy, known: Knowledge, parties: Parties, server_requests: ServerRequests,
    forwarder: Forwarder, links: SignInLinks, results: LongResults, predictor: Predictor, discovery: DiscoverTools,
    note_result: Callable[[str, Raw], None], at_end: Callable[[Callable[[], None]], None], connect: OwnTool,
    store: Store,
) -> ToolCalls:  # fmt: skip
    """`note_result`, `at_end`: as of `ToolRunner`. `connect` answers `connect_server`."""
    confirmation = Confirmation(live, server_requests)
    lookup = ToolLookup(known.catalog, parties.upstreams, forwarder, known.recorder, policy, known.gatekeeper)
    tasks = UpstreamTasks(forwarder, parties.upstreams, server_requests, lambda *given: give_task(*given))
    runner = ToolRunner(
        parties.upstreams, forwarder, known.recorder, known.flows, predictor, results, links, tasks, policy,
        note_result, at_end,
    )  # fmt: skip
    kept = KeptCalls(live, store, policy, parties.upstreams, known.recorder)
    long_calls = LongCalls(
        live, kept, parties.clients, known.catalog, runner, results, tasks, parties.upstreams, forwarder
    )  # fmt: skip
    client_tasks = ClientTasks(kept, forwarder, parties.upstreams)

    def give_task(exchange: Exchange, upstream: Upstream, reply: Reply) -> None:
        if (running := runner.describe(exchange)) is not None:
            client_tasks.give(exchange, upstream, reply, running)

    admission = Admission(policy, known.catalog, known.recorder, confirmation)
    return ToolCalls(
        discovery, lookup, admission, confirmation, runner, predictor, results, long_calls, client_tasks, connect,
        known.recorder, links,
    )  # fmt: skip
