"""Calls that take longer than their clients wait.

Many clients give a call up after a minute, whatever it reports meanwhile. So a call that has run for `call_wait_s` is
answered: it still runs, and `call_result` waits for it. An exchange of our own takes the place of the client's, so that
all that is done with a reply is done as always, and the call is recorded when it is over. What comes of it is kept in
the store, so that it survives a restart, for whoever has the credential and the profile of the client that called.

A plain call ends with the proxy that waits for it; then `call_result` says so. A task of an upstream goes on, and the
next proxy asks for it.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from msgspec import Struct, field
from msgspec.json import Decoder
from msgspec.structs import replace

from foretool.server.calls.runner import ToolRunner
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.names import CALL, CALL_RESULT
from foretool.server.clients.client import Client
from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import LiveConfig
from foretool.server.methods.long_results import LongResults
from foretool.server.protocol import jsonrpc, translate
from foretool.server.protocol.jsonrpc import UNSET, Message, Raw
from foretool.server.recording.recorder import Recorder
from foretool.server.system.processes import is_running, machine_name
from foretool.server.trust.policy import TrustPolicy
from foretool.server.trust.text import one_line
from foretool.storage.engine import StorageError
from foretool.storage.records import Call, KeptCall, Outcome
from foretool.storage.sql.kept_calls import KeptCallStore

RUN_S: Final = 3600.0
"""How long a call may go on, without a sign of life, after its client was answered. Its server's `timeout_s` is meant
for calls that somebody waits for."""
KEPT_S: Final = 24 * 3600.0
"""How long a result is kept that nobody has asked for."""
READ_S: Final = 600.0
"""How long a result is kept that was asked for: its answer may be lost on the way."""
WAIT_S: Final = 50.0
"""How long `call_result` waits where `call_wait_s` is 0."""
MOST_RUNNING: Final = 64
"""Calls of one owner that go on at once; a client waits for more of them as long as it likes."""
MOST_KEPT: Final = 100
"""Calls of one owner that are kept; the oldest make room."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of the results that are kept for one owner."""
MOST_REPLY: Final = 4 * 1024 * 1024
"""Bytes of one result. A larger one is given to a client that waits for it, and not kept."""
FORGET_S: Final = 60.0
"""Pause between two looks for results whose time is over."""
_MOST_PROGRESS: Final = 200
"""Characters of what a server says of its progress."""

log = logging.getLogger("foretool.long_calls")
_decode_call = Decoder(Call).decode


class _LongCall(Struct, eq=False):
    """A call that goes on here, or that another process waits for."""

    row: KeptCall
    exchange: Exchange | None = None
    """Is answered with what comes of it; None where another process waits for it."""
    started: float = field(default_factory=time.perf_counter)
    waiting: list[Exchange] = field(default_factory=list)
    """Requests of `call_result` that wait for it."""
    questions: list[tuple[Any, bytes]] = field(default_factory=list)
    """Questions of its server, by id, which nobody who waits has got yet."""
    input_wanted: Raw | None = None
    """A result that asks a modern client for input, which nobody has got yet."""
    progress: str = ""
    is_saved: bool = True


class _Inbox:
    """The channel of an exchange whose client does not wait."""

    def __init__(self, take: Callable[[Message], None]) -> None:
        self._take = take

    def send(self, data: bytes) -> None:
        self._take(jsonrpc.decode(data))

    def finish(self, data: bytes, code: int | None) -> None:
        self._take(jsonrpc.decode(data))

    def poll(self) -> None:
        """Nobody polls here."""

    def end(self) -> None:
        """`Exchange.on_drop` tells of it."""


class LongCalls:
    """Hands calls over that take too long, keeps what comes of them, and answers `call_result`."""

    def __init__(
        self, live: LiveConfig, policy: TrustPolicy, clients: Iterable[Client], catalog: Catalog, store: KeptCallStore,
        recorder: Recorder, runner: ToolRunner, results: LongResults,
    ) -> None:  # fmt: skip
        self._live = live
        self._policy = policy
        self._clients = clients
        self._catalog = catalog
        self._store = store
        self._recorder = recorder
        self._runner = runner
        self._results = results
        self._calls: dict[str, _LongCall] = {}
        self._process = (machine_name(), os.getpid(), time.time())
        self._forgot_at = 0.0

    @property
    def _patience(self) -> float:
        return self._live.settings.call_wait_s

    def tick(self) -> None:
        """Answer whoever has waited long enough; called about once a second."""
        now = time.perf_counter()
        if self._patience:
            for client in self._clients:
                if client.transport == "library":
                    continue  # a program waits as long as it says
                for exchange in list(client.exchanges.values()):
                    if exchange.running is not None and now - exchange.started >= self._patience:
                        exchange.attempt(self._hand_over, exchange)
        for call in list(self._calls.values()):
            if not call.is_saved:
                self._save(call)
            if call.exchange is None and not call.row.reply:
                self._look_again(call)
            for exchange in [each for each in call.waiting if now - each.started >= (self._patience or WAIT_S)]:
                call.waiting.remove(exchange)
                self._say_running(call, exchange)
            if call.exchange is None and not call.waiting and (call.is_saved or call.row.until < self._recorder.now()):
                self._calls.pop(call.row.ident, None)  # the store knows it as well, or its time is over
        if now - self._forgot_at >= FORGET_S:
            self._forgot_at = now
            self._try(lambda: self._store.forget_old(self._recorder.now()))

    # -- a client that waits no longer

    def _hand_over(self, exchange: Exchange) -> None:
        """Let a call go on without its client, and tell the client how to ask for the result."""
        running = self._runner.describe(exchange)
        owner = _owner(exchange)
        if running is None or not exchange.can_pass or self._count(owner) >= MOST_RUNNING:
            return
        machine, pid, process_at = self._process
        now = self._recorder.now()
        row = KeptCall(
            secrets.token_hex(16), owner, exchange.own_session.record.key, running.tool.id, running.tool.upstream,
            running.task, exchange.era, machine, pid, process_at, now - (time.perf_counter() - exchange.started),
            now + KEPT_S, "", jsonrpc.encode(running.record).decode(),
        )  # fmt: skip
        call = self._calls[row.ident] = _LongCall(row, started=exchange.started)
        call.exchange = held = self._make_exchange(call, exchange)
        exchange.pass_to(held)
        record_drop = held.on_drop
        held.on_drop = partial(self._on_dropped, call, record_drop)
        if (request := held.request) is not None and request.timeout:
            request.timeout = max(request.timeout, RUN_S)
            request.deadline = time.monotonic() + request.timeout
        self._save(call)
        # A client refuses a result without the structured content that it was promised, unless it is an error.
        self._say_running(call, exchange, is_error=running.promises_structure)

    def _make_exchange(self, call: _LongCall, of: Exchange) -> Exchange:
        """Make the exchange that is answered in place of a client's."""
        # With a token of ours, progress comes also where the client did not want it.
        meta = {**of.meta, translate.PROGRESS: jsonrpc.raw(call.row.ident)}
        return Exchange(
            of.client, _Inbox(partial(self._take, call)), of.outbox, of.id, of.method, of.era, of.params, meta, _ignore,
            session=of.session, chat=of.chat, started=of.started, doubt=of.doubt, is_kept=True,
        )  # fmt: skip

    def _say_running(self, call: _LongCall, exchange: Exchange, *, is_error: bool = False) -> None:
        tool, ident = call.row.tool, call.row.ident
        progress = f" Last progress: {call.progress}." if call.progress else ""
        text = (
            f"{tool} is still running, for {time.perf_counter() - call.started:,.0f} s so far.{progress} To wait for "
            f'its result, call {CALL} with {{"name": "{CALL_RESULT}", "arguments": {{"id": "{ident}"}}}}; with '
            f'"cancel": true beside the id, this cancels it. Do not call {tool} again meanwhile: it would run twice.'
        )
        exchange.own_result({"content": [{"type": "text", "text": text}], **({"isError": True} if is_error else {})})

    def _count(self, owner: str) -> int:
        return sum(call.row.owner == owner and call.exchange is not None for call in self._calls.values())

    # -- what comes of a call

    def _take(self, call: _LongCall, message: Message) -> None:
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

    def _end(self, call: _LongCall, reply: bytes) -> None:
        """Give what came of a call to whoever waits for it, and keep it."""
        if self._calls.get(call.row.ident) is not call:
            return
        waiting, call.waiting, call.exchange = call.waiting, [], None
        if len(reply) > MOST_REPLY and not waiting:
            size = len(reply) / 2**20
            reply = _error_reply(
                f"the result of {call.row.tool} has {size:.1f} MiB and could not be kept; call it again"
            )
        now = self._recorder.now()
        row = replace(call.row, reply=reply.decode(), until=now + (READ_S if waiting else KEPT_S))
        call.row = row if len(reply) <= MOST_REPLY else replace(row, reply="", until=now)
        self._save(call)
        self._trim(row.owner)
        for exchange in waiting:
            exchange.attempt(self._deliver, row, exchange)

    def _on_dropped(self, call: _LongCall, record: Callable[[], None] | None) -> None:
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
            self._try(lambda: self._store.shorten(call.row.ident, self._recorder.now() + READ_S))
            self._deliver(call.row, exchange)
        elif arguments.get("cancel") is True:
            self._cancel(call, exchange)
        else:
            self._wait(call, exchange)

    def _find(self, exchange: Exchange, ident: str) -> _LongCall | None:
        """Return a call that this client may ask for. Raises `StorageError`."""
        call = self._calls.get(ident)
        if call is None:
            row = self._store.find(ident)
            call = _LongCall(row) if row is not None and row.until > self._recorder.now() else None
        if call is None or call.row.owner != _owner(exchange):
            return None
        if not self._policy.reach(exchange.client.profile).admits(call.row.upstream):
            return None  # its server was removed, or the profile lost it
        if not call.row.reply and call.exchange is None and ident not in self._calls:
            self._go_on(call, exchange)
        return call

    def _go_on(self, call: _LongCall, exchange: Exchange) -> None:
        """Take up a call that another process has waited for, or say that its result will not come."""
        call.started = time.perf_counter() - max(self._recorder.now() - call.row.started_at, 0.0)
        self._calls[call.row.ident] = call
        self._look_again(call)

    def _look_again(self, call: _LongCall) -> None:
        """See whether another process has the result by now, or has ended without it."""
        try:
            call.row = row = self._store.find(call.row.ident) or call.row
        except StorageError:
            return
        if row.reply:
            waiting, call.waiting = call.waiting, []
            for exchange in waiting:
                exchange.attempt(self._deliver, row, exchange)
        elif row.machine == self._process[0] and not is_running(row.pid, row.process_at):
            self._record(call, "lost")
            why = "foretool was started again while it ran. It may have been carried out: check before calling it again"
            self._end(call, _error_reply(f"the result of {row.tool} is lost: {why}"))

    def _wait(self, call: _LongCall, exchange: Exchange) -> None:
        call.waiting.append(exchange)
        exchange.on_drop = partial(_remove, call.waiting, exchange)
        if call.exchange is not None:
            call.exchange.client = exchange.client  # the one that called may have gone
        self._give_questions(call)
        self._give_input(call)

    def _cancel(self, call: _LongCall, exchange: Exchange) -> None:
        if call.exchange is None:
            exchange.tool_error(f"{CALL_RESULT}: another foretool process waits for {call.row.tool}; ask there")
            return
        call.exchange.drop("cancelled by the client")
        exchange.own_result({"content": [{"type": "text", "text": f"{call.row.tool} was cancelled."}]})

    def _give_questions(self, call: _LongCall) -> None:
        if call.waiting:
            for _, question in call.questions:
                call.waiting[-1].send(question)
            call.questions.clear()

    def _give_input(self, call: _LongCall) -> None:
        """End the request of whoever waits with the question of the server; the call goes on with their retry, as one
        that somebody waits for."""
        if call.input_wanted is None or not call.waiting:
            return
        waiting, call.waiting = call.waiting, []
        self._calls.pop(call.row.ident, None)
        self._try(lambda: self._store.shorten(call.row.ident, 0.0))
        for exchange in waiting[1:]:
            exchange.tool_error(f"{CALL_RESULT}: the server of {call.row.tool} asks for input, in another request")
        waiting[0].result(call.input_wanted)

    # -- records

    def _record(self, call: _LongCall, outcome: Outcome) -> None:
        """Record a call that was begun by another process."""
        record = _decode_call(call.row.record)
        took_ms = (self._recorder.now() - call.row.started_at) * 1000
        self._recorder.call(replace(record, outcome=outcome, took_ms=took_ms), ())

    def _trim(self, owner: str) -> None:
        """Make room where more is kept for an owner than may be, in the store and in memory."""
        self._try(lambda: self._store.trim(owner, MOST_KEPT, MOST_BYTES))
        left = MOST_BYTES
        over = [call for call in self._calls.values() if call.row.owner == owner and call.exchange is None]
        for place, call in enumerate(sorted(over, key=lambda each: -each.row.started_at)):
            left -= len(call.row.reply)
            if (place >= MOST_KEPT or left < 0) and not call.waiting:
                del self._calls[call.row.ident]

    def _save(self, call: _LongCall) -> None:
        """Write a call, if content may be written at all. What the store refuses stays in memory until it can be
        written."""
        may_write = self._live.settings.record != "off"
        call.is_saved = may_write and self._try(lambda: self._store.save(call.row))
        if call.is_saved and call.exchange is None:
            self._calls.pop(call.row.ident, None)

    def _try(self, write: Callable[[], object]) -> bool:
        try:
            write()
        except StorageError as error:
            log.warning("calls that take long: %s", error)
            return False
        return True


def _owner(exchange: Exchange) -> str:
    return jsonrpc.encode([exchange.client.principal, exchange.client.profile.name]).decode()


def _missing(ident: object) -> str:
    if not isinstance(ident, str) or not ident:
        return 'expected "id", the one that the answer of a call which took long names'
    return (
        f"no call with the id {one_line(ident)[:40]!r} is kept for this client. A result is kept for a day, and for "
        "ten minutes after it was read"
    )


def _error_reply(text: str) -> bytes:
    result = {"content": [{"type": "text", "text": f"foretool: {text}"}], "isError": True}
    return jsonrpc.encode({"result": result})


def _describe_progress(params: Any) -> str:
    """Return what a server says of its progress, in one line."""
    try:
        said = jsonrpc.plain_object(_raw(params)) or {}
    except ValueError:
        return ""
    done, total, message = said.get("progress"), said.get("total"), said.get("message")
    steps = f"{done:g}" if isinstance(done, int | float) else ""
    steps += f" of {total:g}" if steps and isinstance(total, int | float) else ""
    words = one_line(message)[:_MOST_PROGRESS] if isinstance(message, str) else ""
    return f"{steps} ({words})" if steps and words else steps or words


def _raw(params: Any) -> Raw | None:
    return params if isinstance(params, Raw) else None


def _remove(waiting: list[Exchange], exchange: Exchange) -> None:
    if exchange in waiting:
        waiting.remove(exchange)


def _ignore(exchange: Exchange) -> None:
    """Nobody counts this exchange among those in flight."""
