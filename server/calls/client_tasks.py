"""Tasks of upstreams for clients that speak tasks themselves (SEP-2663): the client gets the task under an id of ours,
and what it asks about it goes to the server. The id is kept in the store, so it is good also after a restart.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from foretool.server.calls.kept_calls import KeptCalls, LongCall, owner_of
from foretool.server.calls.tool_call import RunningCall
from foretool.server.calls.upstream_tasks import is_unknown_task, read_task, speaks_tasks
from foretool.server.clients.exchange import Exchange
from foretool.server.methods.forwarder import Forwarder
from foretool.server.protocol import jsonrpc, translate
from foretool.server.protocol.jsonrpc import Raw, RpcError
from foretool.server.protocol.versions import TASKS
from foretool.server.trust.questions import QuestionRefused, prepare_questions
from foretool.server.upstreams.connection import Lost, Reply
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.engine import StorageError
from foretool.storage.records import Era, KeptCall, Outcome

_TASK_S: Final = 7 * 24 * 3600.0
"""How long a task is known at most; its server may name less."""
_UNKNOWN: Final = (
    "server {!r} does not know the task of this call of {!r} any more: it may have been carried out, so check before"
    " calling again"
)
_OVER: Final[Mapping[str, Outcome]] = {"completed": "ok", "failed": "error", "cancelled": "cancelled"}


class ClientTasks:
    """Gives tasks to clients that speak tasks, and answers `tasks/get`, `tasks/update` and `tasks/cancel`."""

    def __init__(self, kept: KeptCalls, forwarder: Forwarder, upstreams: UpstreamRegistry) -> None:
        self._kept = kept
        self._forwarder = forwarder
        self._upstreams = upstreams

    def handlers(self, era: Era) -> dict[str, Callable[[Exchange], None]]:
        methods = ("tasks/get", "tasks/update", "tasks/cancel") if era == "modern" else ()
        return dict.fromkeys(methods, self.ask)

    def give(self, exchange: Exchange, upstream: Upstream, reply: Reply, running: RunningCall) -> None:
        """Answer a call with a task, which stands for the task that its server has made."""
        task = read_task(reply)
        assert task is not None and not isinstance(reply, Lost) and isinstance(reply.result, Raw)
        now, ttl_ms = self._kept.now(), task.get("ttlMs")
        kept_s = min(ttl_ms / 1000, _TASK_S) if isinstance(ttl_ms, int | float) else _TASK_S
        row = KeptCall(
            secrets.token_hex(16), owner_of(exchange), exchange.own_session.record.key, running.tool.id, upstream.name,
            task["taskId"], exchange.era, "", 0, 0.0, now, now + kept_s, "", jsonrpc.encode(running.record).decode(),
        )  # fmt: skip
        self._kept.save(LongCall(row))
        given = jsonrpc.merge_members(reply.result, {"taskId": row.ident})
        self._forwarder.answer(exchange, upstream, replace(reply, result=given))

    def ask(self, exchange: Exchange) -> None:
        """Pass on what a client asks about its task."""
        method = exchange.method
        if not speaks_tasks(exchange):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise RpcError(jsonrpc.MISSING_CAPABILITY, f"{method}: the client did not declare {TASKS}", needed)
        ident = jsonrpc.text(exchange.params.get("taskId"))
        try:
            call = self._kept.find(exchange, ident) if ident else None
        except StorageError as error:
            raise RpcError(jsonrpc.INTERNAL_ERROR, f"{method}: what is kept cannot be read now ({error})") from error
        if call is None or not call.row.task:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{method}: this client has no task with this id")
        exchange.takes_task = True
        upstream = self._upstreams.serving(call.row.upstream, exchange.client.profile)
        params = {**exchange.params, "taskId": jsonrpc.raw(call.row.task)}
        self._forwarder.forward(exchange, upstream, params, partial(self._answer, call, upstream))

    def _answer(self, call: LongCall, upstream: Upstream, exchange: Exchange, reply: Reply) -> None:
        if not isinstance(reply, Lost) and isinstance(reply.result, Raw):
            members = jsonrpc.fields(reply.result)
            if exchange.method == "tasks/get":
                self._note_end(call, members)
            elif exchange.method == "tasks/cancel":
                self._kept.record(call, "cancelled")
            if "taskId" in members:
                given: Any = jsonrpc.merge_members(reply.result, {"taskId": call.row.ident})
                try:
                    reply = replace(reply, result=prepare_questions(upstream.name, given))
                except QuestionRefused as error:
                    exchange.error(jsonrpc.INTERNAL_ERROR, f"server {upstream.name!r} asked: {error}")
                    return
        elif not isinstance(reply, Lost) and is_unknown_task(reply):
            self._kept.record(call, "lost")
            exchange.error(jsonrpc.INVALID_PARAMS, _UNKNOWN.format(upstream.name, call.row.tool))
            return
        self._forwarder.answer(exchange, upstream, reply)

    def _note_end(self, call: LongCall, state: Mapping[str, Raw]) -> None:
        """Record the call of a task that is over."""
        outcome = _OVER.get(jsonrpc.text(state.get("status")) or "")
        if outcome == "ok" and "result" in state and translate.is_tool_error(state["result"]):
            outcome = "tool_error"
        if outcome is not None:
            self._kept.record(call, outcome)
