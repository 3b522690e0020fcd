"""One request of a client while it is being answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from foretool.server.protocol import jsonrpc, translate
from foretool.server.protocol.jsonrpc import Id, Raw
from foretool.server.transports.client.base import Channel
from foretool.server.upstreams.connection import Request
from foretool.storage.records import Era

if TYPE_CHECKING:
    from foretool.server.clients.client import Client
    from foretool.server.clients.session import Conversation, Session
    from foretool.server.upstreams.upstream import Upstream


class Exchange(Struct, eq=False):
    """See the module. Answered exactly once: by `result`, `error` or `drop`."""

    client: Client
    channel: Channel
    id: Id
    method: str
    era: Era
    params: dict[str, Raw]
    meta: dict[str, Raw]
    session: Session | None = None
    """Whose it is; set before its handler runs."""
    chat: Conversation | None = None
    """Which of the session's conversations it belongs to, where it said so."""
    started: float = field(default_factory=time.perf_counter)
    upstream: Upstream | None = None
    request: Request | None = None
    """What went to the upstream for it."""
    on_drop: Callable[[], None] | None = None
    """Called when the client gives it up; for what no upstream knows of."""
    rounds: int = 0
    """How often its upstream has asked for input."""
    done: bool = False

    @property
    def progress_token(self) -> Raw | None:
        return self.meta.get(translate.PROGRESS)

    def is_done(self) -> bool:
        """`done`, asked anew."""
        return self.done

    def result(self, value: Raw) -> None:
        if self._settle():
            self.request = None  # it points back at us
            self.client.proxy.outbox.finish(self.channel, jsonrpc.result(self.id, value), None)

    def own_result(self, value: Mapping[str, Any]) -> None:
        """A result of ours, in the client's era."""
        self.result(translate.own_result(value, self.method, self.era))

    def error(self, code: int, message: str, data: Any = None) -> None:
        self.raw_error(jsonrpc.error_object(code, message, data))

    def raw_error(self, error: Raw) -> None:
        if self._settle():
            code, _ = jsonrpc.error_of(error)
            self.client.proxy.outbox.finish(self.channel, jsonrpc.failure(self.id, error), code)

    def send(self, data: bytes) -> None:
        """A notification or a question in the course of it."""
        if not self.done:
            self.client.proxy.outbox.send(self.channel, data)

    def drop(self, reason: str) -> None:
        """The client no longer wants it: no answer, and the upstream is told."""
        if not self._settle():
            return
        if self.request is not None and self.upstream is not None:
            self.upstream.cancel(self.request, reason)
            self.request.drop_callbacks()
            self.request = None
        if self.on_drop is not None:
            self.on_drop()
        self.client.proxy.outbox.end(self.channel)

    def _settle(self) -> bool:
        if self.done:
            return False
        self.done = True
        self.client.forget(self)
        return True


class Outbox:
    """What goes to clients in this turn of the loop: first the records are committed, then it is sent."""

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
        """After what was said before: the client may come back for the rest."""
        self._put(channel, b"", False, None)

    def _put(self, channel: Channel, data: bytes | None, last: bool, code: int | None) -> None:
        if not self._waiting:
            self._soon(self.flush)
        self._waiting.append((channel, data, last, code))

    def flush(self) -> None:
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
