"""One request of a client while it is being answered, and the outbox that its answers leave through."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from foretool.server.clients.conversation import Conversation
from foretool.server.clients.session import Session
from foretool.server.config.loader import Profile
from foretool.server.lists.growth import ToolList
from foretool.server.protocol import jsonrpc, translate
from foretool.server.protocol.jsonrpc import Id, Message, Raw, RpcError
from foretool.server.transports.client.base import Channel
from foretool.server.upstreams.connection import Party, Request
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era, Person

log = logging.getLogger("foretool.exchange")


class ListOwner(Protocol):
    """What answering a list of tools needs to know of a client."""

    profile: Profile
    tools: ToolList
    told_servers: frozenset[str]
    """The servers whose own words it was given when it connected."""

    @property
    def is_program(self) -> bool: ...


class Caller(ListOwner, Protocol):
    """What answering a request needs to know of its client; `Client` implements it."""

    era: Era
    transport: str
    folder: str
    principal: str
    person: Person
    info: dict[str, Any]
    capabilities: dict[str, Any]
    log_level: str
    version: str
    told_servers: frozenset[str]
    is_cut_off: bool

    @property
    def says_goodbye(self) -> bool: ...

    @property
    def is_shell(self) -> bool: ...

    @property
    def party(self) -> Party: ...

    def introduce(self, info: dict[str, Any], capabilities: dict[str, Any], era: Era) -> None: ...

    def end_sessions(self) -> None: ...

    def add_listen(self, exchange: Exchange, honoured: dict[str, Any]) -> None: ...

    def declared(self, exchange: Exchange | None = None) -> dict[str, Any]: ...

    def ask(
        self,
        method: str,
        params: Raw | Any,
        answer: Callable[[Message], None],
        exchange: Exchange | None,
        progress: Callable[[Raw], None] | None = None,
    ) -> Id: ...

    def withdraw(self, question: Id, reason: str, exchange: Exchange | None) -> None: ...

    def notify(self, kind: str, method: str, params: dict[str, Any] | None = None, uri: str = "") -> bool: ...

    def notify_raw(self, message: Message) -> None: ...


class Exchange(Struct, eq=False):
    """A request and everything its answer needs. It is answered exactly once: by `result`, `error` or `drop`."""

    client: Caller
    channel: Channel
    outbox: Outbox
    id: Id
    method: str
    era: Era
    params: dict[str, Raw]
    meta: dict[str, Raw]
    on_done: Callable[[Exchange], None]
    """Told once the request is answered or dropped."""
    session: Session | None = None
    """The session it belongs to; set before its handler runs."""
    chat: Conversation | None = None
    """The conversation of the session it belongs to, where it names one."""
    started: float = field(default_factory=time.perf_counter)
    upstream: Upstream | None = None
    request: Request | None = None
    """The request that went to the upstream for it."""
    on_drop: Callable[[], None] | None = None
    """Called when the client gives the request up; for work that no upstream knows of."""
    on_end: Callable[[], None] | None = None
    """Called when the request ends in any way."""
    running: object = None
    """The call that an upstream works on for it, as whoever runs it knows it."""
    on_pass: Callable[[Exchange], None] | None = None
    """Told which exchange is answered in its place, by whoever works for it without a request to an upstream."""
    takes_task: bool = False
    """Its server may answer it with a task."""
    task: str = ""
    """The id of the task of its server that it waits for."""
    is_kept: bool = False
    """Its answer goes to us, whole: its client does not wait any more, or it is one of several calls of a list."""
    rounds: int = 0
    """How often its upstream has asked for input."""
    doubt: str = ""
    """What of a call's arguments does not fit the schema of its tool, although they were sent."""
    done: bool = False

    @property
    def progress_token(self) -> Raw | None:
        return self.meta.get(translate.PROGRESS)

    @property
    def own_session(self) -> Session:
        """The session it belongs to, for handlers, which run after it is set."""
        assert self.session is not None
        return self.session

    def attempt(self, step: Callable[..., None], *arguments: Any) -> None:
        """Run one step of answering, unless the request is answered. An exception becomes the request's error."""
        if self.done:
            return
        try:
            step(*arguments)
        except RpcError as error:
            self.error(error.code, str(error), error.data)
        except ValueError as error:
            self.error(jsonrpc.INVALID_PARAMS, f"{self.method}: {error}")
        except Exception as error:  # the boundary of a request: a mistake of ours in one must not end the others
            log.exception("Failed")
            self.fail(error)

    def result(self, value: Raw) -> None:
        if self._settle():
            self.request = None  # it points back at us
            self.outbox.finish(self.channel, jsonrpc.result(self.id, value), None)

    def own_result(self, value: Mapping[str, Any]) -> None:
        """Answer with a result of ours, in the era of the client."""
        self.result(translate.own_result(value, self.method, self.era))

    def tool_error(self, text: str) -> None:
        """Answer a tool call with an error that the model can read."""
        self.own_result(translate.text_result(text, is_error=True))

    def error(self, code: int, message: str, data: Any = None) -> None:
        self.raw_error(jsonrpc.error_object(code, message, data))

    def raw_error(self, error: Raw) -> None:
        if self._settle():
            code, _ = jsonrpc.error_of(error)
            self.outbox.finish(self.channel, jsonrpc.failure(self.id, error), code)

    def fail(self, error: Exception) -> None:
        """Answer with an internal error; the log has the traceback."""
        said = "internal error of foretool; its log says more"
        if isinstance(error, ImportError):  # what few requests need is imported when the first one needs it
            said = "foretool was upgraded or removed while it runs; restart this client"
        self.error(jsonrpc.INTERNAL_ERROR, f"{self.method}: {said}")

    def send(self, data: bytes) -> None:
        """Send a notification or a question that belongs to the request."""
        if not self.done:
            self.outbox.send(self.channel, data)

    def stand_in(self, channel: Channel, params: dict[str, Raw], meta: dict[str, Raw]) -> Exchange:
        """Return a copy of this exchange, for the same client, whose answer goes to `channel` and not to the client."""
        return Exchange(
            self.client, channel, self.outbox, self.id, self.method, self.era, params, meta, _ignore,
            session=self.session, chat=self.chat, is_kept=True,
        )  # fmt: skip

    @property
    def can_pass(self) -> bool:
        """Whether an upstream works on it and no question to the user is open, so that `pass_to` can be called."""
        return (self.request is not None and not self.request.questions) or self.on_pass is not None

    def pass_to(self, other: Exchange) -> None:
        """Hand the upstream request that this exchange waits for over to another one, which then gets its answer."""
        other.upstream, other.running = self.upstream, self.running
        other.task, other.takes_task = self.task, self.takes_task
        other.request, other.on_drop, other.on_pass = self.request, self.on_drop, self.on_pass
        if self.request is not None:
            self.request.exchange = other
        if self.on_pass is not None:
            self.on_pass(other)
        self.request = self.on_drop = self.on_pass = self.running = None

    def drop(self, reason: str) -> None:
        """Give the request up because the client did: send no answer and cancel it at the upstream."""
        if not self._settle():
            return
        if self.request is not None and self.upstream is not None:
            self.upstream.cancel(self.request, reason)
            self.request.drop_callbacks()
            self.request = None
        if self.on_drop is not None:
            self.on_drop()
        self.outbox.end(self.channel)

    def _settle(self) -> bool:
        if self.done:
            return False
        self.done = True
        self.on_done(self)
        if self.on_end is not None:
            self.on_end()
        return True


def _ignore(exchange: Exchange) -> None:
    """Nobody counts this exchange among those in flight."""


class Outbox:
    """Gathers what goes to clients in one turn of the loop, commits the records of that turn, then sends."""

    def __init__(self, commit: Callable[[], None], soon: Callable[[Callable[[], None]], None]) -> None:
        self._commit = commit
        self._soon = soon
        self._waiting: list[tuple[Channel, bytes | None, bool, int | None]] = []

    def send(self, channel: Channel, data: bytes) -> None:
        self._put(channel, data, False, None)

    def finish(self, channel: Channel, data: bytes, code: int | None) -> None:
        self._put(channel, data, True, code)

    def end(self, channel: Channel) -> None:
        self._put(channel, None, True, None)

    def poll(self, channel: Channel) -> None:
        """Once everything before it is sent, end the stream so that the client comes back for the rest."""
        self._put(channel, b"", False, None)

    def _put(self, channel: Channel, data: bytes | None, last: bool, code: int | None) -> None:
        if not self._waiting:
            self._soon(self.flush)
        self._waiting.append((channel, data, last, code))

    def flush(self) -> None:
        """Commit, then send what has gathered."""
        waiting, self._waiting = self._waiting, []
        self._commit()
        for channel, data, last, code in waiting:
            if data is None:
                channel.end()
            elif not data:
                channel.poll()
            elif last:
                channel.finish(data, code)
            else:
                channel.send(data)
