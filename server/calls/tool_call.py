"""A call of an upstream's tool on its way, and what may stop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from foretool.server.calls.bridged_calls import BridgedCall
from foretool.server.clients.conversation import Conversation
from foretool.server.clients.exchange import Exchange
from foretool.server.clients.session import Missed, Via
from foretool.server.hints.prediction import Predictor
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.policy import Asked
from foretool.server.upstreams.connection import Lost
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Call, Cause, Miss, Tool, ToolId

_OFTEN: Final = 2
"""After so many failures of one tool, one after the other, a model is told to search. The first may be an error that it
corrects."""


class ToolCall(Struct, eq=False):
    """One call from the name that a client gave to its answer."""

    exchange: Exchange
    """The request to answer; another one where the client had to ask again after a question."""
    name: str
    asked: Asked
    written: BridgedCall | None = None
    """What a model wrote for a bridge."""
    has_waited: bool = False
    """Every server that may have the tool has listed its tools, or could not."""
    confirmed: Tool | None = None
    """The tool that the user has agreed to, as it was when the question came."""

    @property
    def via(self) -> Via:
        return "name" if self.asked in ("name", "page") else "bridge"


def finder_of(exchange: Exchange) -> str:
    """Return the name of what finds tools for this caller: a command in a shell, else `discover_tools`."""
    return "foretool search" if exchange.client.is_shell else "discover_tools"


def say_failing(
    exchange: Exchange, chat: Conversation, tool: ToolId, predictor: Predictor, times: int, *, is_misfit: bool = False
) -> str:
    """Return advice for a model whose bridged calls of this tool have failed so many `times` in a row, "" if there is
    none: some models repeat a tool that is not made for the task, or try others of its server, and neither search nor
    call what they were told of first. `is_misfit`: its arguments do not fit the schema, which the model is told."""
    session, client = exchange.own_session, exchange.client
    often = f"{tool} has now failed {times} times in a row" if times >= _OFTEN else ""
    if not times or (is_misfit and not often):
        return ""
    if not client.is_shell and (instead := predictor.untried(client, chat, times)):
        return "; ".join(filter(None, (often, f"named for this task, and not called yet: {instead}")))
    if not often:
        return ""
    found = predictor.search_again(client, session, chat) if not client.is_shell else ""
    search = f"describe the task to {finder_of(exchange)}"
    if found:
        return f"{often}; other tools for this task: {found}; if none is, {search}"
    return f"{often}; if it is not made for your task, {search}"


class RunningCall(Struct, frozen=True):
    """A call that an upstream works on, as far as another process needs to know it."""

    tool: Tool
    record: Call | None
    """What is to be recorded of it, except for its outcome; None where it has no record of its own."""
    promises_structure: bool = False
    """Its client may know an output schema of the tool."""
    task: str = ""
    """The id of the upstream's task."""


class Refusal(Struct, frozen=True):
    """Why a call ends without running, and what is recorded of it."""

    text: str
    missed: Missed | Miss | None = None
    record: Call | None = None
    """The refused call, where its server is known."""
    is_unknown: bool = False
    """No such tool exists for the client: a call by name gets a protocol error (specification: tools)."""
    is_made_up: bool = False
    """No tool has this name, and no server that has yet to list may have it. Models write such names for what they want
    done, so a search for its words finds what was meant."""
    unreachable: tuple[Upstream, Lost] | None = None
    """The server that could not list its tools, and why; a sign-in may help."""
    audited: Call | None = None
    """The refused call of a tool that does not exist for this client: only the audit log has it."""


class Wait(Struct, frozen=True):
    """A call cannot be decided before more is known of the tools."""

    until: Callable[[Callable[[], None]], None]
    """Calls a callback once it is known, at once if it is known by now."""


def describe_refused(call: ToolCall, tool: ToolId, upstream: str, at: float, recorder: Recorder) -> Call:
    """Return the record of a call that does not run. `recorder` decides what is kept of its arguments."""
    session, chat = call.exchange.own_session, call.exchange.chat
    return Call(
        session=session.record.key,
        at=at,
        tool=tool,
        upstream=upstream,
        via=call.via,
        hidden=not session.list.sees(tool),
        outcome="refused",
        took_ms=0.0,
        sent=False,
        arguments=recorder.describe_arguments(call.exchange.params.get("arguments")),
        handle=chat.handle if chat else "",
    )


def refuse(
    call: ToolCall, tool: ToolId, server: str, cause: Cause, change: str, text: str, recorder: Recorder,
    is_unknown: bool = False,
) -> Refusal:  # fmt: skip
    """Return the refusal of a call whose tool, or at least its server, is known, with the miss that it is. `change`:
    what would let the call through."""
    exchange, at = call.exchange, recorder.now()
    missed = exchange.own_session.refuse(tool, server, call.via, cause, change, at, exchange.chat)
    return Refusal(text, missed, describe_refused(call, tool, server, at, recorder), is_unknown)
