"""Calls that take longer than their clients wait.

Many clients give a call up after a minute, whatever it reports meanwhile. So a call that has run for `call_wait_s` is
answered: it still runs, and `call_result` waits for it. An exchange of our own takes the place of the client's, so that
all that is done with a reply is done as always, and the call is recorded when it is over. What comes of it is kept in
the store, so that it survives a restart, for whoever has the credential and the profile of the client that called.

A plain call ends with the proxy that waits for it; then `call_result` says so. A task of an upstream goes on, and the
next proxy asks for it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from foretool.server.calls.kept_calls import Inbox, KeptCalls, LongCall, owner_of
from foretool.server.calls.runner import ToolRunner
from foretool.server.calls.upstream_tasks import UpstreamTasks
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.names import CALL, CALL_RESULT
from foretool.server.clients.client import Client
from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import LiveConfig
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.long_results import LongResults
from foretool.server.protocol import jsonrpc, translate
from foretool.server.protocol.jsonrpc import UNSET, Message, Raw
from foretool.server.trust.text import one_line
from foretool.server.upstreams.connection import Lost, Reply
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import State, Upstream
from foretool.storage.engine import StorageError
from foretool.storage.records import KeptCall, Tool

_RUN_S: Final = 3600.0
"""How long a call may go on, without a sign of life, after its client was answered. Its server's `timeout_s` is meant
for calls that somebody waits for."""
_KEPT_S: Final = 24 * 3600.0
"""How long a result is kept that nobody has asked for."""
_READ_S: Final = 600.0
"""How long a result is kept that was asked for: its answer may be lost on the way."""
_WAIT_S: Final = 50.0
"""How long `call_result` waits where `call_wait_s` is 0."""
_MOST_RUNNING: Final = 64
"""Calls of one owner that go on at once; a client waits for more of them as long as it likes."""
_MOST_REPLY: Final = 4 * 1024 * 1024
"""Bytes of one result. A larger one is given to a client that waits for it, and not kept."""
_MOST_PROGRESS: Final = 200
"""Characters of what a server says of its progress."""


class LongCalls:
    """Answers calls that take too long with an id, keeps their results, and answers `call_result`."""

    def __init__(
        self, live: LiveConfig, kept: KeptCalls, clients: Iterable[Client], catalog: Catalog,
        runner: ToolRunner, results: LongResults, tasks: UpstreamTasks,
        upstreams: UpstreamRegistry, forwarder: Forwarder,
    ) -> None:  # fmt: skip
        self._live = live
        self._clients = clients
        self._catalog = catalog
        self._kept = kept
        self._runner = runner
        self._results = results
        self._tasks = tasks
        self._upstreams = upstreams
        self._forwarder = forwarder

    @property
    def _patience(self) -> float:
        return self._live.settings.call_wait_s

    def tick(self) -> None:
        """Answer the clients that have waited long enough; called about once a second."""
        now = time.perf_counter()
        for exchange in self._impatient(now):
            exchange.attempt(self._hand_over, exchange)
        for call in list(self._kept.here.values()):
            if (held := call.exchange) is not None and held.task != call.row.task:
                call.row = replace(call.row, task=held.task)
                self._kept.save(call)
            elif held is not None and held.task and held.upstream is not None and held.upstream.state is State.STOPPED:
                self._let_go(call)
            elif held is None and call.waiting and not call.row.reply:
                call.waiting[0].attempt(self._look_again, call, call.waiting[0])
            for exchange in [each for each in call.waiting if now - each.started >= (self._patience or _WAIT_S)]:
                call.waiting.remove(exchange)
                self._say_running(call, exchange)
        self._kept.tidy()

    def _impatient(self, now: float) -> list[Exchange]:
        """Return the calls whose clients have waited long enough. A program waits as long as it says."""
        if not self._patience:
            return []
        return [
            exchange
            for client in self._clients
            if not client.is_program
            for exchange in client.exchanges.values()
            if exchange.running is not None and now - exchange.started >= self._patience
        ]

    # -- a client that waits no longer

    def _hand_over(self, exchange: Exchange) -> None:
        """Let a call go on without its client, and tell the client how to ask for the result."""
        running = self._runner.describe(exchange)
        owner = owner_of(exchange)
        if running is None or not exchange.can_pass or self._kept.count(owner) >= _MOST_RUNNING:
            return
        machine, pid, process_at = self._kept.process
        now = self._kept.now()
        row = KeptCall(
            secrets.token_hex(16), owner, exchange.own_session.record.key, running.tool.id, running.tool.upstream,
            running.task, exchange.era, machine, pid, process_at, now - (time.perf_counter() - exchange.started),
            now + _KEPT_S, "", jsonrpc.encode(running.record).decode() if running.record is not None else "",
        )  # fmt: skip
        call = LongCall(row, started=exchange.started)
        call.exchange = held = self._make_exchange(call, exchange)
        exchange.pass_to(held)
        record_drop = held.on_drop
        held.on_drop = partial(self._on_dropped, call, record_drop)
        if (request := held.request) is not None and request.timeout:
            request.timeout = max(request.timeout, _RUN_S)
            request.deadline = time.monotonic() + request.timeout
        self._kept.save(call)
        # A client refuses a result without the structured content that it was promised, unless it is an error.
        self._say_running(call, exchange, is_error=running.promises_structure)

    def _make_exchange(self, call: LongCall, of: Exchange) -> Exchange:
        """Make the exchange that is answered in place of a client's."""
        # With a token of ours, progress comes also where the client did not want it.
        meta = {**of.meta, translate.PROGRESS: jsonrpc.raw(call.row.ident)}
        held = of.stand_in(Inbox(partial(self._take, call)), of.params, meta)
        held.started, held.doubt = of.started, of.doubt
        return held

    def _say_running(self, call: LongCall, exchange: Exchange, *, is_error: bool = False) -> None:
        tool, ident = call.row.tool, call.row.ident
        progress = f" Last progress: {call.progress}." if call.progress else ""
        text = (
            f"{tool} is still running, for {time.perf_counter() - call.started:,.0f} s so far.{progress} To wait for "
            f'its result, call {CALL} with {{"name": "{CALL_RESULT}", "arguments": {{"id": "{ident}"}}}}; with '
            f'"cancel": true beside the id, this cancels it. Do not call {tool} again meanwhile: it would run twice.'
        )
        exchange.own_result(translate.text_result(text, is_error=is_error))

    # -- what comes of a call

    def _take(self, call: LongCall, message: Message) -> None:
        """Take what would have gone to the client."""
        if message.method is UNSET:
            if isinstance(message.result, Raw) and translate.input_required(message.result):
                call.input_wanted = message.result
                self._give_input(call)
            else:
                key, value = ("error", message.error) if message.result is UNSET else ("result", message.result)
                self._end(call, jsonrpc.encode({key: value}))
        elif message.method == "notifications/progress":
            call.progress = _describe_progress(message.params) or call.progress
            for exchange in call.waiting:
                if (token := exchange.progress_token) is not None:
                    params = jsonrpc.merge_members(message.params, {translate.PROGRESS: token})
                    exchange.send(jsonrpc.notification("notifications/progress", params))
        elif message.id is not UNSET:
            call.questions.append((message.id, jsonrpc.encode(message)))
            self._give_questions(call)
        elif call.waiting:
            call.waiting[-1].send(jsonrpc.encode(message))
        elif message.method == "notifications/cancelled":
            taken_back = (jsonrpc.plain_object(_raw(message.params)) or {}).get("requestId")
            call.questions = [each for each in call.questions if each[0] != taken_back]

    def _end(self, call: LongCall, reply: bytes) -> None:
        """Give what came of a call to whoever waits for it, and keep it."""
        if self._kept.here.get(call.row.ident) is not call:
            return  # its question was given to a client, whose retry goes on
        waiting, call.waiting, call.exchange = call.waiting, [], None
        if len(reply) > _MOST_REPLY and not waiting:
            size = len(reply) / 2**20
            reply = _error_reply(
                f"the result of {call.row.tool} has {size:.1f} MiB and could not be kept; call it again"
            )
        now = self._kept.now()
        row = replace(call.row, reply=reply.decode(), until=now + (_READ_S if waiting else _KEPT_S))
        call.row = row if len(reply) <= _MOST_REPLY else replace(row, reply="", until=now)
        self._kept.save(call)
        for exchange in waiting:
            exchange.attempt(self._deliver, row, exchange)

    def _on_dropped(self, call: LongCall, record: Callable[[], None] | None) -> None:
        """Note that the call was cancelled, or that nobody answered its questions."""
        if record is not None:
            record()
        self._end(call, _error_reply(f"{call.row.tool} was cancelled; it may have been carried out in part"))

    def _deliver(self, row: KeptCall, exchange: Exchange) -> None:
        members = jsonrpc.fields(Raw(row.reply.encode()))
        if "error" in members:
            exchange.raw_error(members["error"])
            return
        result = members["result"]
        if (tool := self._catalog.get(row.tool)) is not None:
            result = self._results.fit(exchange, tool, result)
        exchange.result(translate.translate_result(result, exchange.method, exchange.era, "modern"))

    # -- a client that asks

    def answer(self, exchange: Exchange, raw: Raw) -> None:
        """Answer a call of `call_result`."""
        arguments = jsonrpc.plain_object(raw) or {}
        ident = arguments.get("id")
        try:
            call = self._find(exchange, ident) if isinstance(ident, str) else None
        except StorageError as error:
            exchange.tool_error(f"{CALL_RESULT}: what is kept cannot be read now ({error}); ask again in a while")
            return
        if call is None:
            exchange.tool_error(f"{CALL_RESULT}: {_missing(ident)}")
        elif call.row.reply:
            self._kept.shorten(call, self._kept.now() + _READ_S)
            self._deliver(call.row, exchange)
        elif arguments.get("cancel") is True:
            self._cancel(call, exchange)
        else:
            self._wait(call, exchange)

    def _find(self, exchange: Exchange, ident: str) -> LongCall | None:
        """Return a call that this client may ask for. Raises `StorageError`."""
        call = self._kept.find(exchange, ident)
        if call is not None and not call.row.reply and call.exchange is None:
            self._kept.here[ident] = call
            self._look_again(call, exchange)
        return call

    def _look_again(self, call: LongCall, exchange: Exchange) -> None:
        """See whether another process has the result by now, or has ended without it. Then its task is taken up; a
        plain call is lost. Raises `StorageError`."""
        self._kept.load(call)
        row = call.row
        if row.reply:
            waiting, call.waiting = call.waiting, []
            for exchange in waiting:
                exchange.attempt(self._deliver, row, exchange)
        elif self._kept.is_served(row):
            return
        elif row.task:
            self._take_up(call, exchange)
        else:
            self._kept.record(call, "lost")
            way_out = "It may have been carried out: check before calling it again"
            if self._runner.only_reads(exchange, self._tool(row)):
                way_out = "It only reads: call it again"
            why = f"foretool was started again while it ran. {way_out}"
            self._end(call, _error_reply(f"the result of {row.tool} is lost: {why}"))

    def _tool(self, row: KeptCall) -> Tool:
        """Return the tool of a call, as far as it is known still."""
        return self._catalog.get(row.tool) or Tool(row.tool, row.upstream, row.tool, b"{}", "")

    def _take_up(self, call: LongCall, exchange: Exchange) -> None:
        """Wait for a task that another process has waited for."""
        machine, pid, process_at = self._kept.process
        call.row = replace(call.row, machine=machine, pid=pid, process_at=process_at)
        upstream = self._upstreams.serving(call.row.upstream, exchange.client.profile)
        call.exchange = held = self._make_exchange(call, exchange)
        held.task = call.row.task
        held.on_drop = partial(self._on_dropped, call, partial(self._kept.record, call, "cancelled"))
        self._kept.save(call)
        self._tasks.resume(held, upstream, partial(self._settle, call, upstream))

    def _let_go(self, call: LongCall) -> None:
        """Leave the task of a server that was stopped to whoever asks for it once the server is there again."""
        call.exchange, call.row = None, replace(call.row, machine="", pid=0)
        self._kept.save(call)

    def _settle(self, call: LongCall, upstream: Upstream, exchange: Exchange, reply: Reply) -> None:
        """Take what came of a task that was taken up."""
        if isinstance(reply, Lost):
            self._kept.record(call, "lost")
            self._runner.answer_lost(exchange, upstream, self._tool(call.row), reply)
            return
        if isinstance(reply.result, Raw):
            self._kept.record(call, "tool_error" if translate.is_tool_error(reply.result) else "ok")
        else:
            self._kept.record(call, "error")
        self._forwarder.answer(exchange, upstream, reply)

    def _wait(self, call: LongCall, exchange: Exchange) -> None:
        call.waiting.append(exchange)
        exchange.on_drop = partial(_remove, call.waiting, exchange)
        if call.exchange is not None:
            call.exchange.client = exchange.client  # the one that called may have gone
        self._give_questions(call)
        self._give_input(call)

    def _cancel(self, call: LongCall, exchange: Exchange) -> None:
        if call.exchange is None:
            exchange.tool_error(f"{CALL_RESULT}: another foretool process waits for {call.row.tool}; ask there")
            return
        call.exchange.drop("cancelled by the client")
        exchange.own_result(translate.text_result(f"{call.row.tool} was cancelled."))

    def _give_questions(self, call: LongCall) -> None:
        if call.waiting:
            for _, question in call.questions:
                call.waiting[-1].send(question)
            call.questions.clear()

    def _give_input(self, call: LongCall) -> None:
        """End the request of whoever waits with the question of the server; the call goes on with their retry, as one
        that somebody waits for."""
        if call.input_wanted is None or not call.waiting:
            return
        waiting, call.waiting = call.waiting, []
        self._kept.here.pop(call.row.ident, None)
        self._kept.shorten(call, 0.0)
        for exchange in waiting[1:]:
            exchange.tool_error(f"{CALL_RESULT}: the server of {call.row.tool} asks for input, in another request")
        waiting[0].result(call.input_wanted)


def _missing(ident: object) -> str:
    if not isinstance(ident, str) or not ident:
        return 'expected "id", the one that the answer of a call which took long names'
    return (
        f"no call with the id {one_line(ident)[:40]!r} is kept for this client. A result is kept for a day, and for "
        "ten minutes after it was read"
    )


def _error_reply(text: str) -> bytes:
    return jsonrpc.encode({"result": translate.text_result(f"foretool: {text}", is_error=True)})


def _describe_progress(params: Any) -> str:
    """Return what a server says of its progress, in one line."""
    try:
        said = jsonrpc.plain_object(_raw(params)) or {}
    except ValueError:
        return ""
    done, total, message = said.get("progress"), said.get("total"), said.get("message")
    counts = isinstance(done, int | float) and isinstance(total, int | float)
    steps = f"{done:g} of {total:g}" if counts else ""
    words = one_line(message)[:_MOST_PROGRESS].replace('"', "'") if isinstance(message, str) else ""
    return ", ".join(filter(None, (steps, f'"{words}"' if words else "")))


def _raw(params: Any) -> Raw | None:
    return params if isinstance(params, Raw) else None


def _remove(waiting: list[Exchange], exchange: Exchange) -> None:
    if exchange in waiting:
        waiting.remove(exchange)
