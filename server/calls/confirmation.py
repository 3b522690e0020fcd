"""Asks the user before a call runs, where the setting `confirm` says so: once per tool and session.

The question shows the tool, its server and the arguments. The model may have taken these from a poisoned page, so each
is one line of bounded length, invisible characters are written out, and secrets of the config stay hidden.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import LiveConfig
from foretool.server.methods.server_requests import ServerRequests, refusal
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, Message, Raw
from foretool.server.trust.policy import Verdict
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
