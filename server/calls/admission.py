"""Lets a call through, asks the user first, or refuses it, as `trust.policy` decides.

Where the setting `confirm` says so, the user is asked once per tool and session. The question shows the tool, its
server and the arguments. The model may have taken these from a poisoned page, so each is one line of bounded length,
invisible characters are written out, and secrets of the config stay hidden.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from foretool.server.calls.tool_call import Refusal, ToolCall, describe_refused, refuse
from foretool.server.catalog.catalog import Catalog
from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import LiveConfig
from foretool.server.config.servers import pattern_of
from foretool.server.methods.server_requests import ServerRequests, refusal
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, Message, Raw
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.approvals import review_command, why_held
from foretool.server.trust.ledger import HELD
from foretool.server.trust.policy import Confirm, Decision, Reach, Refuse, TrustPolicy, Verdict
from foretool.server.trust.text import one_line, visible
from foretool.storage.records import Tool

_METHOD: Final = "elicitation/create"
MOST_ARGUMENTS: Final = 12
"""Arguments that a question shows; it counts the others."""
_MOST_NAME: Final = 60
MOST_VALUE: Final = 200
"""Characters of a name and of a value that a question shows."""
_MOST_READ: Final = 65_536
"""Bytes of a value that are decoded for the question; of a longer one, its beginning is shown as it is written."""

Answered = Callable[[Exchange, bool], None]
"""Takes the exchange to go on with, and whether the user agreed."""


class Admission:
    """Asks the rules about each call before it runs."""

    def __init__(self, policy: TrustPolicy, catalog: Catalog, recorder: Recorder, confirmation: Confirmation) -> None:
        self._policy = policy
        self._catalog = catalog
        self._recorder = recorder
        self._confirmation = confirmation

    def reach(self, exchange: Exchange) -> Reach:
        """Return what the client of an exchange reaches."""
        return self._policy.reach(exchange.client.profile)

    def decide(self, call: ToolCall, tool: Tool) -> Refusal | Confirm | None:
        """Return why a call must not run, the question that the user has to answer before, or None if it may run."""
        exchange, decision = call.exchange, self._decide(call, tool)
        if isinstance(decision, Refuse):
            return self._refuse(call, tool, decision)
        if not isinstance(decision, Confirm) or exchange.own_session.has_agreed(tool):
            return None
        if self._confirmation.can_ask(exchange):
            return decision
        who = "it was not called on a terminal" if exchange.client.is_shell else "this client cannot ask"
        reason = f'the setting "confirm" ({decision.setting}) asks the user first, and {who}'
        change = f'set "confirm" to "never", or add {pattern_of(tool.name)!r} to "allow" of server {tool.upstream!r}'
        refused = Refuse(decision.verdict, f"{reason}; only the user can change that", change)
        return self._refuse(call, tool, refused)

    def take_answer(self, call: ToolCall, tool: Tool, *, agreed: bool) -> Refusal | None:
        """Record the user's answer. Return why the call ends, None if it goes on: the tool may have changed while the
        question stood, and so may the rules."""
        if not agreed:
            return self.give_up(call, tool, f"{tool.id} was not run: the user did not agree")
        call.exchange.own_session.agree(tool)
        call.confirmed = tool
        return None

    def _decide(self, call: ToolCall, tool: Tool) -> Decision:
        decision = self._policy.reach(call.exchange.client.profile).decide(tool, call.asked)
        meant = call.confirmed or tool
        if (meant.upstream, meant.name) != (tool.upstream, tool.name):
            return Refuse(decision.verdict, "its name belongs to another tool by now")
        if tool.schema_hash == HELD and not (isinstance(decision, Refuse) and decision.hides):
            return Refuse(decision.verdict, why_held(tool.upstream), review_command(tool.upstream), hides=True)
        return decision

    def give_up(self, call: ToolCall, tool: Tool, text: str) -> Refusal:
        """Return a refusal for a call that no rule forbids and that cannot run, such as for want of an answer."""
        exchange, at = call.exchange, self._recorder.now()
        missed = exchange.own_session.call_in_vain(tool, call.via, at, exchange.chat)
        return Refusal(text, missed, describe_refused(call, tool.id, tool.upstream, at, self._recorder))

    def _refuse(self, call: ToolCall, tool: Tool, refused: Refuse) -> Refusal:
        text = f"{tool.id} was not run: {refused.reason}"
        if not refused.change:
            return replace(self.give_up(call, tool, text), is_unknown=refused.hides)
        return refuse(call, tool.id, tool.upstream, refused.cause, refused.change, text, self._recorder, refused.hides)


class Confirmation:
    """Puts the question to the client's user."""

    def __init__(self, config: LiveConfig, server_requests: ServerRequests) -> None:
        self._config = config
        self._server_requests = server_requests

    def can_ask(self, exchange: Exchange) -> bool:
        """Return whether the client can show a question (MCP: elicitation by form)."""
        return refusal(_METHOD, UNSET, exchange.client.declared(exchange)) is None

    def ask(self, exchange: Exchange, tool: Tool, verdict: Verdict, answered: Answered) -> None:
        """Ask whether a call may run, and call `answered` unless the client gives the request up."""
        arguments = exchange.params.get("arguments")
        self._put(exchange, describe_call(tool, verdict, arguments, self._config.redact), answered)

    def ask_about_all(
        self, exchange: Exchange, calls: Sequence[tuple[Tool, Verdict, Raw]], answered: Answered
    ) -> None:  # fmt: skip
        """Ask once whether all of these calls may run."""
        about = [describe_call(tool, verdict, arguments, self._config.redact) for tool, verdict, arguments in calls]
        texts = [f"{number}. {text}" for number, text in enumerate(about, 1)]
        filled = 'What is written like "$.1.name" is filled in from the results of earlier calls.'
        self._put(exchange, "\n".join([f"{len(calls)} calls, one after the other. {filled}", *texts]), answered)

    def _put(self, exchange: Exchange, message: str, answered: Answered) -> None:
        form = {"message": message, "requestedSchema": {"type": "object", "properties": {}}}

        def on_answer(at: Exchange, answer: Message) -> None:
            if at.done:
                return
            # The retry of a modern client is wrapped once more. What runs is what the user was shown.
            at.params, at.chat, at.doubt = exchange.params, exchange.chat, exchange.doubt
            at.attempt(answered, at, _has_accepted(answer))

        self._server_requests.ask_client(exchange, _METHOD, jsonrpc.raw(form), on_answer)


def describe_call(tool: Tool, verdict: Verdict, arguments: Raw | None, redact: Callable[[str], str]) -> str:
    """Return the question about a call: which tool of which server, what it may do, and each argument on one line."""
    if verdict.source == "none":
        about = "Its server does not say whether it changes or deletes something."
    else:
        whose = "You rated" if verdict.source == "config" else "Its server marks"
        kinds = {"read": "read-only", "write": "one that changes something", "destructive": "destructive"}
        about = f"{whose} it as {kinds[verdict.risk]}."
    name, server = (one_line(visible(each), _MOST_NAME) for each in (tool.id, tool.upstream))
    lines = [f"Run {name} of server {server!r}? {about}", *_argument_lines(arguments, redact)]
    return "\n".join([*lines, "A yes holds for this tool until the session ends."])


def _argument_lines(arguments: Raw | None, redact: Callable[[str], str]) -> list[str]:
    try:
        members = jsonrpc.fields(arguments) if arguments is not None else {}
    except ValueError:
        return [f"Arguments: {_shown(bytes(arguments or b''), redact)}"]
    if not members:
        return ["It has no arguments."]
    lines = [
        f"- {one_line(visible(redact(key[:_MOST_READ])), _MOST_NAME)}: {_shown(bytes(members[key]), redact)}"
        for key in list(members)[:MOST_ARGUMENTS]
    ]
    over = len(members) - MOST_ARGUMENTS
    return ["Arguments:", *lines, *([f"- and {over} more that are not shown"] if over > 0 else [])]


def _shown(value: bytes, redact: Callable[[str], str]) -> str:
    """Return a JSON value on one line, with its length where it is cut."""
    text = value[:_MOST_READ].decode(errors="replace")
    if len(value) <= _MOST_READ:
        # Escapes could hide what is written; decoded, everything is read as it will be run.
        with suppress(ValueError, RecursionError):
            text = json.dumps(jsonrpc.decode_value(value), ensure_ascii=False)
    line = one_line(visible(redact(text)))
    return line if len(line) <= MOST_VALUE else f"{line[:MOST_VALUE]}… ({len(value):,} bytes in all)"


def _has_accepted(answer: Message) -> bool:
    try:
        return answer.result is not UNSET and jsonrpc.text(jsonrpc.fields(answer.result).get("action")) == "accept"
    except ValueError:
        return False
