"""The ways to an upstream: one line for each era, with its current connection and the requests that wait for one.

A line is connected while somebody wants it, and again after it was lost. An upstream that turns out to speak only the
other era is served by that line alone: what waited for this one moves there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.translate import unite
from foretool.server.protocol.versions import ERAS, other_era
from foretool.server.transports.tasks import Tasks
from foretool.server.transports.upstream.base import Link, LinkError, Receiver
from foretool.server.upstreams.connection import (
    HANDSHAKE_S,
    LONG_HANDSHAKE_S,
    Connection,
    ConnectionEvents,
    HandshakeError,
    Lost,
    Party,
    Request,
    postpone,
)
from foretool.storage.records import Era

BACKOFF_S: Final = (0.2, 1.0, 3.0, 10.0, 30.0, 60.0)
"""Pauses before an upstream that nobody calls is restarted; the last one repeats. A call restarts it at once."""

_STABLE_S: Final = 10.0
"""An upstream that is lost within this time after its start counts as one that failed to start."""

_REPLACED: Final = frozenset({jsonrpc.METHOD_NOT_FOUND, jsonrpc.UNSUPPORTED_VERSION})
"""Error codes of a refused handshake that mean: a version that speaks only the other era has replaced the upstream."""

log = logging.getLogger("foretool.upstream")

OpenLink = Callable[[Receiver, Era], Awaitable[Link]]
Connect = Callable[[Era, ConnectionEvents], Connection]
"""Makes a connection whose link is not there yet."""


def note_refusal(speaks: dict[Era, bool], era: Era, code: int) -> bool:
    """Note that a handshake of this era was refused with this error code. Returns whether the upstream may speak the
    other era; False means that it is simply broken."""
    other = other_era(era)
    if speaks.get(era) and code not in _REPLACED:
        return False
    if speaks.get(other) is False:
        # As far as we know it speaks neither era: either that is out of date, or the upstream is broken.
        del speaks[other]
        if not speaks.get(era):
            return False
    speaks[era] = False
    return True


class Line:
    """The connection to an upstream in one era, and the requests that wait for it; it survives restarts."""

    def __init__(self, era: Era) -> None:
        self.era: Era = era
        self.connection: Connection | None = None
        self.wanted = asyncio.Event()
        """Set when somebody needs a connection."""
        self.lost = asyncio.Event()
        """Set when the current connection is lost or no longer needed."""
        self.is_let_go = False
        """The current connection has not failed, and another one takes its place."""
        self.failures = 0
        """Starts in a row that failed, on this line or on the one that it took over from."""
        self._waiting: deque[Request] = deque()

    @property
    def ready(self) -> Connection | None:
        """The connection if its handshake is done, else None."""
        return self.connection if self.connection is not None and self.connection.ready else None

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def put(self, request: Request) -> None:
        """Keep a request until there is a connection, and wake the upstream's keeper of the line."""
        if request.timeout and not request.deadline:
            request.deadline = time.monotonic() + request.timeout
        self._waiting.append(request)
        self.wanted.set()

    def take_over(self, other: Line) -> None:
        """Take over the requests that wait for another line."""
        self._waiting.extend(other._waiting)
        other._waiting.clear()

    def send_waiting(self, connection: Connection) -> None:
        while self._waiting:
            connection.send(self._waiting.popleft())

    def fail_waiting(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.reply(Lost(reason, sent=False))

    def cancel(self, request: Request, reason: str) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
        elif self.connection is not None:
            self.connection.cancel(request, reason)

    def expire(self, now: float, asleep_s: float = 0.0) -> None:
        """Answer each request whose deadline has passed with `Lost`. `now`: monotonic seconds."""
        late = self.connection.expire(now, asleep_s) if self.connection is not None else []
        postpone(self._waiting, now, asleep_s)
        unsent = [request for request in self._waiting if request.deadline and request.deadline < now]
        for request in unsent:
            self._waiting.remove(request)
        for request in late + unsent:
            request.reply(Lost(request.lateness, request.sent))


class LineEvents(ConnectionEvents, Protocol):
    """What a line reports to its upstream, besides the reports of its connections."""

    @property
    def rests(self) -> bool:
        """Whether it is started again only when it is wanted."""
        ...

    def on_starting(self) -> None: ...

    def on_connected(self, line: Line, connection: Connection) -> Awaitable[None]:
        """The handshake is done; what is returned ends once the server has listed its tools."""
        ...

    def on_moved(self, era: Era, other: Era, *, is_told: bool) -> None:
        """The line of `other` serves the clients of this era too from now on. `is_told`: the upstream knows their
        subscriptions, or will hear of them once that line is ready."""

    def on_failed(self, line: Line, reason: str) -> None: ...


class Lines:
    """The line of each era to one upstream, each kept connected while it is wanted.

    `open_link` starts or reaches the server, `capabilities` returns what we declare in a handshake of the given era,
    `connect` makes a connection.
    """

    def __init__(
        self, name: str, events: LineEvents, open_link: OpenLink, capabilities: Callable[[Era], dict[str, Any]],
        connect: Connect,
    ) -> None:  # fmt: skip
        self.speaks: dict[Era, bool] = {}
        """The eras that the upstream is known to speak, or not to speak."""
        self.least_pause_s = 0.0
        """The pause before it is started again, at least."""
        self._name = name
        self._events = events
        self._open_link = open_link
        self._capabilities = capabilities
        self._make_connection = connect
        self._by_era = {era: Line(era) for era in ERAS}
        self._closing = Tasks(f"upstream {name!r}")
        """They end connections and are never cancelled: a child that nobody waits for becomes a zombie."""
        self._stderr: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Line]:
        return iter(self._by_era.values())

    def spoken_era(self, *, lacking: bool = False) -> Era | None:
        """Return the era that the upstream is known to speak, or not to speak (`lacking`); None while that is
        unknown."""
        return next((era for era, does in reversed(self.speaks.items()) if does is not lacking), None)

    def era_for(self, era: Era) -> Era:
        """Return the era in which a client of `era` is served."""
        return era if self.speaks.get(era, True) else other_era(era)

    def line_for(self, era: Era) -> Line:
        """Return the line that serves clients of an era."""
        return self._by_era[self.era_for(era)]

    def ready_in(self, era: Era) -> Connection | None:
        """Return the connection of an era if its handshake is done."""
        return self._by_era[era].ready

    def ready(self) -> list[Connection]:
        """Return the connections whose handshake is done."""
        return [connection for line in self if (connection := line.ready) is not None]

    def connections(self) -> list[Connection]:
        return [line.connection for line in self if line.connection is not None]

    def links(self) -> list[Link]:
        return [connection.link for connection in self.connections() if connection.link is not None]

    def find(self, connection: Connection) -> Line | None:
        # By identity: during a probe the era of a connection is not yet that of its line.
        return next((line for line in self if line.connection is connection), None)

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last stderr lines of the running process, or of the one that ended."""
        return next((lines for link in self.links() if (lines := link.stderr())), self._stderr)

    @property
    def noise(self) -> str:
        """What the running process wrote in place of messages, in words; "" if it did not."""
        return next((text for connection in self.connections() if (text := connection.noise)), "")

    def tell_again(self, *, even_called: bool) -> bool:
        """End a legacy connection whose handshake declared less than clients can do by now, so that it is made again.
        Returns whether there was one. `even_called`: also one on which clients have sent requests."""
        line = self._by_era["legacy"]
        connection = line.ready
        if connection is None or connection.in_flight or (connection.parties and not even_called):
            return False
        if unite(connection.declared, self._capabilities("legacy")) == connection.declared:
            return False
        log.info("upstream %r: it is started again, because a client has come that can do more", self._name)
        line.is_let_go = True
        line.lost.set()
        return True

    def told_of(self) -> list[Request]:
        """Return the clients' requests to which a log entry of the upstream may belong."""
        return [request for connection in self.connections() for request in connection.told_of()]

    def doubt_s(self) -> float:
        """Return for how many more seconds a question of the upstream may belong to a request that was given up."""
        return max((connection.doubt_s() for connection in self.connections()), default=0.0)

    def parties(self) -> set[Party]:
        """Return whose requests were sent on the present connections."""
        return {party for connection in self.connections() for party in connection.parties}

    async def end(self) -> None:
        """Close every connection."""
        await asyncio.gather(*(connection.close() for connection in self.connections()))

    async def wait_closed(self) -> None:
        """Wait for the connections that were let go of."""
        await self._closing.close(cancel=False)

    async def keep(self, line: Line) -> None:
        """Wait until a line is wanted, connect, serve until the connection is lost, pause, and repeat."""
        now = asyncio.get_running_loop().time
        pause: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await line.wanted.wait()
            began = now()
            line.wanted.clear()
            try:
                await self._connect(line)
            except (LinkError, HandshakeError) as error:
                if not self._pass_on(line, error):
                    self._fail(line, str(error))
            except Exception as error:  # the boundary: whoever waits must hear of our mistake, and a retry may succeed
                log.exception("upstream %r: its start failed", self._name)
                self._fail(line, f"foretool itself made a mistake ({type(error).__name__}); its log has more")
            else:
                await line.lost.wait()
                if not line.is_waited_for:
                    line.wanted.clear()  # set before this connection was ready
                is_well = line.is_let_go or now() - began > _STABLE_S
                line.failures = 0 if is_well else line.failures + 1
            self._drop(line)
            is_refused = self.speaks.get(line.era) is False and not line.is_waited_for
            if is_refused:
                line.wanted.clear()  # the upstream turned out to speak only the other era
            rests = is_refused or self._events.rests
            pause = None if rests else max(BACKOFF_S[min(line.failures, len(BACKOFF_S) - 1)], self.least_pause_s)

    async def _connect(self, line: Line) -> None:
        self._events.on_starting()
        line.lost, line.is_let_go = asyncio.Event(), False
        connection = line.connection = self._make_connection(line.era, self._events)
        link = connection.link = await self._open_link(connection, line.era)
        patience = LONG_HANDSHAKE_S if line.failures else HANDSHAKE_S
        try:
            await connection.handshake(self._capabilities(line.era), patience)
        except HandshakeError as error:
            if line.era == "legacy" or error.code == jsonrpc.UNSUPPORTED_VERSION or link.pid is None:
                raise
            # A legacy process refuses the modern probe, as it should; it gets the legacy handshake instead.
            connection.era = "legacy"
            await connection.handshake(self._capabilities("legacy"), patience)
            self.speaks["modern"] = False
            self._swap(line)
        self.speaks[line.era] = True
        await self._events.on_connected(line, connection)

    def _swap(self, line: Line) -> None:
        """Swap the eras of the two lines: the connection of the modern one turned out to be legacy."""
        other = self._by_era["legacy"]
        other.era, line.era = line.era, other.era
        self._by_era = {line.era: line, other.era: other}
        if other.connection is not None and not other.connection.in_flight:
            other.lost.set()  # one connection serves the clients of both eras from now on
        line.take_over(other)
        self._events.on_moved("modern", "legacy", is_told=True)

    def _pass_on(self, line: Line, error: Exception) -> bool:
        """Let the other line serve whoever waits, if the error says that the upstream does not speak this line's era.
        Returns False when the upstream is simply down."""
        code = error.code if isinstance(error, HandshakeError) else None
        if code is None or not note_refusal(self.speaks, line.era, code):
            return False
        other = self._by_era[other_era(line.era)]
        other.failures = line.failures
        self._events.on_moved(line.era, other.era, is_told=False)
        other.take_over(line)
        if (connection := other.ready) is not None:
            other.send_waiting(connection)
        else:
            other.wanted.set()
        return True

    def _fail(self, line: Line, reason: str) -> None:
        line.failures += 1
        self._events.on_failed(line, reason)

    def _drop(self, line: Line) -> None:
        """Let go of a connection that was lost; it ends in a task of its own, so that the next one need not wait."""
        connection, line.connection = line.connection, None
        if connection is not None:
            self._stderr = (connection.link.stderr() if connection.link else ()) or self._stderr
            self._closing.spawn(connection.close())
