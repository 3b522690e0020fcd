"""Tasks of upstreams, as plain calls: a call whose server answers with a task is answered with what comes of the task.

A modern server makes a task of a call if it likes, for clients that declare the extension (SEP-2663); we declare it for
all, and ask `tasks/get` as often as the server says. A legacy server is asked for a task where its tool requires one
(2025-11-25: basic, tasks), and `tasks/result` waits for it. Clients that declare the extension themselves get the task
(`client_tasks`).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from foretool.server.calls.kept_calls import Inbox
from foretool.server.catalog.definitions import requires_task
from foretool.server.clients.exchange import Exchange
from foretool.server.methods.forwarder import Forwarder, OnReply
from foretool.server.methods.server_requests import ServerRequests
from foretool.server.protocol import jsonrpc, translate
from foretool.server.protocol.jsonrpc import UNSET, Message, Raw
from foretool.server.protocol.versions import TASKS
from foretool.server.trust.text import one_line
from foretool.server.upstreams.connection import Lost, Reply
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import State, Upstream
from foretool.storage.records import Tool

_POLL_S: Final = 1.0
"""Pause between two questions about a task where its server names none."""
_LEAST_POLL_S: Final = 0.1
_MOST_POLL_S: Final = 30.0
"""Bounds of what servers name."""
_RESULT_S: Final = 6 * 3600.0
"""How long `tasks/result` of a legacy server may wait."""
_TASK_S: Final = 24 * 3600.0
"""How long a task may go on."""
_MOST_TASK_ID: Final = 1024
"""Characters of the id of a task."""
_MOST_LOST: Final = 8
"""How often in a row a server may be unreachable before its task is given up."""
_ABOUT_TASKS: Final = re.compile(r"\btasks?\b", re.IGNORECASE)
"""What an error of `tasks/result` says that is about the task and not the outcome of its call."""
_RETRY_S: Final = 2.0
"""Pause after the first of them; each further one is twice as long."""


class _Followed(Struct, eq=False):
    """A task that we wait for."""

    exchange: Exchange
    upstream: Upstream
    settle: OnReply
    pause: float = _POLL_S
    until: float = field(default_factory=lambda: time.monotonic() + _TASK_S)
    lost: int = 0
    """How often in a row its server could not be asked."""
    was_lost: str = ""
    """Why its server could not be asked the first time of all, "" if it always could."""
    polls: int = 0
    answered: frozenset[str] = frozenset()
    """Keys of questions that were answered; the server may list them a little longer."""
    timer: asyncio.TimerHandle | None = None

    def move(self, exchange: Exchange) -> None:
        self.exchange = exchange


class UpstreamTasks:
    """Follows the tasks (MCP) that upstreams make of calls, until their results are there."""

    def __init__(
        self, forwarder: Forwarder, upstreams: UpstreamRegistry, questions: ServerRequests,
        give: Callable[[Exchange, Upstream, Reply], None],
    ) -> None:  # fmt: skip
        """`give` answers a client that speaks tasks with the task."""
        self._give = give
        self._forwarder = forwarder
        self._upstreams = upstreams
        self._questions = questions

    def prepare(self, exchange: Exchange, upstream: Upstream, tool: Tool, params: dict[str, Raw]) -> bool:
        """Return whether a server may answer this call with a task; adds the request for a task to `params` where the
        server needs it."""
        declared = self._upstreams.capabilities(upstream.name) or {}
        if upstream.era_for(exchange.era) == "modern":
            exchange.takes_task = TASKS in (declared.get("extensions") or {})
            return exchange.takes_task
        if "tasks" not in declared or not requires_task(tool.definition):
            return False
        params["task"] = jsonrpc.EMPTY
        return True

    def follow(self, upstream: Upstream, settle: OnReply, exchange: Exchange, reply: Reply) -> None:
        """Take the reply to a call: a task is waited for, everything else goes to `settle`, as will its result."""
        made = read_task(reply)
        if made is None:
            settle(exchange, reply)
            return
        if speaks_tasks(exchange) and upstream.era_for("modern") == "modern" and not exchange.is_kept:
            self._give(exchange, upstream, reply)
            return
        followed = _Followed(exchange, upstream, settle, pause_of(_members(reply)))
        exchange.task = str(made["taskId"])
        self._adopt(followed, exchange)
        if upstream.era_for(exchange.era) == "modern":
            self._poll_later(followed)
        else:
            self._ask(followed)

    def resume(self, exchange: Exchange, upstream: Upstream, settle: OnReply) -> None:
        """Follow the task of an exchange that another proxy has followed until now."""
        exchange.takes_task = True
        followed = _Followed(exchange, upstream, settle)
        self._adopt(followed, exchange)
        self._ask(followed)

    def cancel(self, exchange: Exchange, upstream: Upstream, task: str) -> None:
        """Ask a server to end a task, without waiting for its answer."""
        self._forwarder.tell(exchange, upstream, "tasks/cancel", {"taskId": jsonrpc.raw(task)})

    def _adopt(self, followed: _Followed, exchange: Exchange) -> None:
        followed.exchange = exchange
        exchange.on_pass = followed.move
        exchange.on_drop = partial(self._drop, followed, exchange.on_drop)

    def _drop(self, followed: _Followed, record: Callable[[], None] | None) -> None:
        if followed.timer is not None:
            followed.timer.cancel()
        self.cancel(followed.exchange, followed.upstream, followed.exchange.task)
        if record is not None:
            record()

    def _poll_later(self, followed: _Followed, pause: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        followed.timer = loop.call_later(pause or followed.pause, self._ask, followed)

    def _ask(self, followed: _Followed) -> None:
        """Ask how far a task is; a legacy server for its result."""
        exchange, upstream = followed.exchange, followed.upstream
        if exchange.done:
            return
        if time.monotonic() > followed.until:
            self.cancel(exchange, upstream, exchange.task)
            followed.settle(exchange, Lost(f"its task went on for {_TASK_S / 3600:g} hours", sent=True))
            return
        is_modern = upstream.era_for(exchange.era) == "modern"
        method, take = ("tasks/get", self._take_state) if is_modern else ("tasks/result", self._take)
        self._forwarder.forward(
            exchange, upstream, {"taskId": jsonrpc.raw(exchange.task)}, partial(take, followed), method=method
        )
        if not is_modern and exchange.request is not None:
            exchange.request.timeout = _RESULT_S
            exchange.request.deadline += _RESULT_S if exchange.request.deadline else 0.0

    def _take(self, followed: _Followed, exchange: Exchange, reply: Reply) -> None:
        """Settle with a reply, unless it may come yet."""
        exchange.request = None
        if isinstance(reply, Lost):
            followed.was_lost = followed.was_lost or reply.reason
            may_come = followed.lost < _MOST_LOST and not reply.is_unread
            if followed.upstream.state is not State.STOPPED and may_come:
                self._poll_later(followed, _RETRY_S * 2**followed.lost)
                followed.lost += 1
                return
            if followed.upstream.state is State.STOPPED and isinstance(exchange.channel, Inbox):
                return  # a long call; the next proxy asks again
            reply = replace(reply, sent=True)  # the call was, whatever became of the question about its task
        elif is_unknown_task(reply, was_lost=bool(followed.was_lost)):
            reply = _forgotten(followed, exchange, reply)
        exchange.on_pass = None
        followed.settle(exchange, reply)

    def _take_state(self, followed: _Followed, exchange: Exchange, reply: Reply) -> None:
        """Take the answer to `tasks/get`."""
        state = _members(reply)
        status = jsonrpc.text(state.get("status"))
        if isinstance(reply, Message) and reply.error is not UNSET:
            # A call that failed is told of in the state of its task, so this is about the task.
            reply = _forgotten(followed, exchange, reply)
            exchange.request, exchange.on_pass = None, None
            followed.settle(exchange, reply)
            return
        if isinstance(reply, Lost) or status is None:
            self._take(followed, exchange, reply)
            return
        exchange.request, followed.lost = None, 0
        followed.pause = pause_of(state)
        if status == "completed" and "result" in state:
            self._take(followed, exchange, Message(id=0, result=state["result"]))
        elif status == "failed" and "error" in state:
            self._take(followed, exchange, Message(id=0, error=state["error"]))
        elif status in ("working", "input_required"):
            self._report(followed, exchange, state)
            if status == "working" or not self._ask_user(followed, exchange, state):
                self._poll_later(followed)
        else:
            why = f"its server ended it ({status}): {jsonrpc.text(state.get('statusMessage')) or 'it gave no reason'}"
            self._take(followed, exchange, Message(id=0, result=jsonrpc.raw(translate.text_result(why, is_error=True))))

    def _report(self, followed: _Followed, exchange: Exchange, state: dict[str, Raw]) -> None:
        """Tell a client that wants progress what a server says of its task."""
        followed.polls += 1
        if (token := exchange.progress_token) is not None:
            more = {"message": state["statusMessage"]} if "statusMessage" in state else {}
            params = jsonrpc.raw({translate.PROGRESS: token, "progress": followed.polls, **more})
            exchange.send(jsonrpc.notification("notifications/progress", params))

    def _ask_user(self, followed: _Followed, exchange: Exchange, state: dict[str, Raw]) -> bool:
        """Put the questions of a task to the client; return whether there were new ones."""
        try:
            asked = jsonrpc.fields(state.get("inputRequests", UNSET))
        except ValueError:
            return False
        new = {key: value for key, value in asked.items() if key not in followed.answered}
        if not new:
            return False
        exchange.on_pass = None  # who is asked waits
        questions = jsonrpc.raw({"inputRequests": new})
        self._questions.ask_for_input(exchange, followed.upstream.name, questions, partial(self._answer, followed, new))
        return True

    def _answer(self, followed: _Followed, asked: dict[str, Raw], exchange: Exchange, more: dict[str, Raw]) -> None:
        """Give the answers of the client to the server, and wait on."""
        exchange.task, exchange.takes_task = followed.exchange.task, True
        followed.answered |= asked.keys()
        if exchange is not followed.exchange:
            exchange.on_drop, exchange.running = followed.exchange.on_drop, followed.exchange.running
        followed.exchange = exchange
        exchange.on_pass = followed.move
        params = {"taskId": jsonrpc.raw(exchange.task), "inputResponses": more.get("inputResponses", jsonrpc.EMPTY)}
        self._forwarder.forward(
            exchange, followed.upstream, params, partial(self._take_receipt, followed, asked), method="tasks/update"
        )

    def _take_receipt(self, followed: _Followed, asked: dict[str, Raw], exchange: Exchange, reply: Reply) -> None:
        exchange.request = None
        if isinstance(reply, Lost):
            followed.answered -= asked.keys()  # it may not have them, and then asks again
        if isinstance(reply, Message) and reply.error is not UNSET:
            self._take(followed, exchange, reply)
        else:
            self._poll_later(followed, _LEAST_POLL_S)


def is_unknown_task(reply: Message, *, was_lost: bool = False) -> bool:
    """Return whether a server answers that it has no such task, or no tasks at all, and not as the call would have been
    answered: `tasks/result` fails in both ways. `was_lost`: it could not be asked for a while."""
    if not isinstance(reply.error, Raw):
        return False
    code, reason = jsonrpc.error_of(reply.error)
    is_refused = code in (jsonrpc.INVALID_PARAMS, jsonrpc.METHOD_NOT_FOUND)
    return is_refused and (was_lost or _ABOUT_TASKS.search(reason) is not None)


def _forgotten(followed: _Followed, exchange: Exchange, reply: Message) -> Lost:
    """Say that a server knows the task no more, in its words without the id of the task, which no model has seen."""
    said = jsonrpc.error_of(reply.error)[1] if isinstance(reply.error, Raw) else ""
    said = one_line(said.replace(exchange.task, "")).strip(" :\"'")
    meanwhile = f"; it went away meanwhile: {followed.was_lost}" if followed.was_lost else ""
    return Lost(f"it does not know the task of this call any more ({said}){meanwhile}", sent=True)


def speaks_tasks(exchange: Exchange) -> bool:
    """Return whether the client of a request has declared the extension with it."""
    if exchange.era != "modern":
        return False
    extensions = exchange.client.declared(exchange).get("extensions")
    return isinstance(extensions, dict) and TASKS in extensions


def read_task(reply: Reply) -> dict[str, Any] | None:
    """Return the task that a reply to a call announces, in the form of either era; None if it announces none."""
    if not isinstance(reply, Message) or not isinstance(reply.result, Raw):
        return None
    if not jsonrpc.holds(reply.result, b'"taskId"'):
        return None
    members = _members(reply)
    if jsonrpc.text(members.get("resultType")) == "task":
        found: dict[str, Any] | None = jsonrpc.plain_object(reply.result)
    elif "content" in members:
        return None
    else:
        found = jsonrpc.plain_object(members.get("task"))
    ident = found.get("taskId") if found is not None else None
    return found if isinstance(ident, str) and len(ident) <= _MOST_TASK_ID else None


def pause_of(task: Mapping[str, Raw]) -> float:
    """Return after how many seconds a server wants to be asked about a task again."""
    wanted = jsonrpc.decode_value(task.get("pollIntervalMs", Raw(b"null")))
    return min(max(wanted / 1000, _LEAST_POLL_S), _MOST_POLL_S) if isinstance(wanted, int | float) else _POLL_S


def _members(reply: Reply) -> dict[str, Raw]:
    try:
        return jsonrpc.fields(reply.result) if isinstance(reply, Message) else {}
    except ValueError:
        return {}
