"""One upstream: starts when wanted, greets, lists, calls, notices its death, comes back.

An upstream has at most one connection per era in use. A client's request goes to the connection of the client's own
era if the upstream speaks it, else to the other one and is translated by the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol

from msgspec import Struct, field

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Message, Raw
from foretool.server.transports.upstream.base import Link, LinkError, Receiver
from foretool.server.upstreams.connection import Connection, HandshakeError, Lost, Reply, Request, ServerInfo
from foretool.storage.records import Era

BACKOFF_S: Final = (0.2, 1.0, 3.0, 10.0, 30.0, 60.0)
"""Pauses between attempts to bring back an upstream nobody is calling; a call is tried at once."""

STABLE_S: Final = 10.0
"""An upstream that dies within this time of its start counts as one that failed to start."""

LIST_S: Final = 60.0
LONG_LIST_S: Final = 300.0
"""For an upstream that did not list its tools in `LIST_S`: some look them up elsewhere first, or wait for a log-in."""

LIST_AGAIN_S: Final = (1.0, 5.0, 15.0, 60.0, 300.0)
"""Pauses before an upstream whose list failed is asked again, the last one for ever; announcements do not wait."""

DEBOUNCE_S: Final = 0.1
"""An upstream that announces many list changes in a row is asked once."""

LISTEN_AGAIN_S: Final = 2.0

PAGES: Final = 1000
"""More pages than this is an upstream that never ends its list."""

log = logging.getLogger("foretool.upstream")

ERAS: Final[tuple[Era, Era]] = ("legacy", "modern")

_ANOTHER_NOW: Final = frozenset({jsonrpc.METHOD_NOT_FOUND, jsonrpc.UNSUPPORTED_VERSION})
"""Refusals of a handshake by an upstream that took it before: it was replaced by a version of the other era."""


class State(Enum):
    KNOWN = "known"
    """Not started; its tools are known from an earlier run."""
    STARTING = "starting"
    READY = "ready"
    UNLISTED = "unlisted"
    """Up, but its tools could not be listed; those it listed before stay, and it is asked again after a pause."""
    RETRYING = "retrying"
    """Lost or failed to start; tried again after a pause, and at once when it is called."""
    STOPPED = "stopped"


class Host(Protocol):
    """Who an upstream reports to."""

    def on_tools(self, upstream: Upstream, tools: Sequence[Raw]) -> None: ...

    def on_state(self, upstream: Upstream) -> None: ...

    def on_notification(self, upstream: Upstream, message: Message, era: Era) -> None:
        """`era`: of the connection it came on."""

    def on_request(
        self, upstream: Upstream, message: Message, request: Request | None, answer: Callable[[Message], None]
    ) -> None: ...


OpenLink = Callable[[Receiver, Era], Awaitable[Link]]


class _Line(Struct, eq=False):
    """The connection of one era, from first demand to stop, across restarts."""

    era: Era
    connection: Connection | None = None
    waiting: deque[Request] = field(default_factory=deque)
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    running: bool = False
    failures: int = 0
    """Starts in a row that came to nothing, on this line or on the one it took over from."""


class Upstream:
    """See the module. `run` owns every task of it; `request` may be called at any time."""

    def __init__(
        self,
        name: str,
        host: Host,
        open_link: OpenLink,
        timeout_s: float = 60.0,
        redact: Callable[[str], str] = str,
        *,
        capabilities: Callable[[Era], dict[str, Any]] = lambda era: {},
    ) -> None:
        self.name = name
        self.state = State.KNOWN
        self.since = time.time()
        self.error = ""
        self.starts = 0
        self.used_at = 0.0
        """When it was last sent a request; monotonic seconds."""
        self.invalid_lines = 0
        """Lines on its output that were no protocol."""
        self.announced = False
        """It has said that its tools changed, and has not been listed since."""
        self.server_info = ServerInfo()
        self.speaks: dict[Era, bool] = {}
        """What is known of the eras it speaks."""
        self.timeout_s = timeout_s
        self._host = host
        self._open_link = open_link
        self._redact = redact
        self._capabilities = capabilities
        self._lines: dict[Era, _Line] = {era: _Line(era) for era in ERAS}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        """What is being ended; waited for, never cut short: a child that is not seen off stays a zombie."""
        self._stopped: asyncio.Event | None = None
        self._relist: asyncio.TimerHandle | None = None
        self._list_again: asyncio.TimerHandle | None = None
        self._failed_lists = 0
        """In a row."""
        self._stderr: tuple[str, ...] = ()
        self._wanted: dict[Era, set[str]] = {era: set() for era in ERAS}
        """Resources whose changes it is to tell of, by the era of the connection that carries them."""
        self._log_level = ""
        self._listen: Request | None = None

    # -- for the proxy

    @property
    def is_up(self) -> bool:
        return self.state in (State.READY, State.UNLISTED)

    @property
    def pids(self) -> tuple[int, ...]:
        found = (line.connection.pid for line in self._lines.values() if line.connection)
        return tuple(pid for pid in found if pid is not None)

    @property
    def stderr(self) -> tuple[str, ...]:
        """Its last stderr lines, of the running process or of the one that ended."""
        for line in self._lines.values():
            if line.connection is not None and (lines := line.connection.stderr()):
                return lines
        return self._stderr

    @property
    def in_flight(self) -> int:
        return sum(line.connection.in_flight for line in self._lines.values() if line.connection)

    def era_for(self, era: Era) -> Era:
        """The era in which a client of `era` is served."""
        if self.speaks.get(era, True):
            return era
        return "modern" if era == "legacy" else "legacy"

    def is_legacy(self, era: Era) -> bool:
        """Whether a client of `era` is served in the legacy era."""
        return self.era_for(era) == "legacy"

    def request(self, era: Era, request: Request) -> None:
        """Send now, or as soon as the upstream is up; start it if it is not. The reply comes exactly once."""
        if self.state is State.STOPPED:
            request.reply(Lost(f"upstream {self.name!r} is stopped", sent=False))
            return
        line = self._lines[self.era_for(era)]
        self.used_at = time.monotonic()
        if line.connection is not None and line.connection.ready:
            line.connection.send(request)
            return
        request.deadline = time.monotonic() + request.timeout if request.timeout else 0.0
        line.waiting.append(request)
        self._want(line)

    def ask(self, method: str, params: dict[str, Any], reply: Callable[[Reply], None]) -> bool:
        """A request of our own, if it is up; whether it was sent."""
        for line in self._lines.values():
            if line.connection is not None and line.connection.ready:
                line.connection.tell(method, params, reply)
                return True
        return False

    def cancel(self, request: Request, reason: str) -> None:
        for line in self._lines.values():
            if request in line.waiting:
                line.waiting.remove(request)
            elif line.connection is not None:
                line.connection.cancel(request, reason)

    def notify(self, era: Era, method: str, params: dict[str, Any] | None = None) -> None:
        """To the connection of this era, if there is one."""
        connection = self._lines[self.era_for(era)].connection
        if connection is not None and connection.ready:
            connection.notify(method, params)

    def subscribe(self, era: Era, uris: Collection[str], asked: bool = False) -> None:
        """Have it tell clients of `era` when these resources change, now and after each restart. `asked`: a request of
        a client has said so to it already."""
        carrier = self.era_for(era)
        new = [uri for uri in uris if uri not in self._wanted[carrier]]
        self._wanted[carrier].update(new)
        if (connection := self._ready(carrier)) is None or not new or asked:
            return
        if carrier == "modern":
            self._listen_to(connection)
        for uri in new if carrier == "legacy" else ():
            self._own(connection, "resources/subscribe", {"uri": uri})

    def unsubscribe(self, era: Era, uris: Collection[str], asked: bool = False) -> None:
        """Nobody who is served in the era of these clients wants to hear of these resources any more; see
        `subscribe`."""
        carrier = self.era_for(era)
        old = [uri for uri in uris if uri in self._wanted[carrier]]
        self._wanted[carrier].difference_update(old)
        if (connection := self._ready(carrier)) is None or not old or asked:
            return
        if carrier == "modern":
            self._listen_to(connection)
        for uri in old if carrier == "legacy" else ():
            self._own(connection, "resources/unsubscribe", {"uri": uri})

    def tells_of(self, uri: str) -> bool:
        return any(uri in wanted for wanted in self._wanted.values())

    def askers(self) -> list[Request]:
        """Requests in flight of which it may speak."""
        return [request for line in self._lines.values() if line.connection for request in line.connection.askers()]

    def _ready(self, era: Era) -> Connection | None:
        connection = self._lines[era].connection
        return connection if connection is not None and connection.ready else None

    def set_level(self, level: str) -> None:
        """Least severe log level a legacy upstream should send."""
        if level == self._log_level:
            return
        self._log_level = level
        if (connection := self._lines["legacy"].connection) is not None and connection.ready:
            self._own(connection, "logging/setLevel", {"level": level})

    def start(self, era: Era) -> None:
        """Bring it up without waiting for a request."""
        if self.state is not State.STOPPED:
            self._want(self._lines[self.era_for(era)])

    def rest(self) -> None:
        """End the running process until it is wanted again; nothing is done while a request is in flight."""
        if self.state is State.READY and not self.in_flight and not any(self._wanted.values()):
            self._set(State.KNOWN)
            for line in self._lines.values():
                line.lost.set()

    def expire(self) -> None:
        """Give up requests whose time is over; called about once a second."""
        now = time.monotonic()
        for line in self._lines.values():
            late = line.connection.expire(now) if line.connection is not None else []
            unsent = [request for request in line.waiting if request.deadline and request.deadline < now]
            for request in unsent:
                line.waiting.remove(request)
            for request in late + unsent:
                request.reply(Lost(f"no answer within {request.timeout:g} s", request.sent))

    async def run(self) -> None:
        """Until `stop`, or cancelled."""
        self._stopped = asyncio.Event()
        for line in self._lines.values():
            if line.wanted.is_set():
                self._want(line)
        try:
            await self._stopped.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, *self._closing, return_exceptions=True)

    async def stop(self) -> None:
        """End every connection and child process; requests in flight are lost."""
        self._set(State.STOPPED)
        for timer in (self._relist, self._list_again):
            if timer is not None:
                timer.cancel()
        for line in self._lines.values():
            self._fail_waiting(line, "the upstream was stopped")
        await asyncio.gather(*(line.connection.close() for line in self._lines.values() if line.connection))
        for line in self._lines.values():
            line.lost.set()
        if self._stopped is not None:
            self._stopped.set()

    # -- keeping a connection

    def _is_stopped(self) -> bool:
        return self.state is State.STOPPED

    def _want(self, line: _Line) -> None:
        line.wanted.set()
        if self._stopped is not None and not line.running:
            line.running = True
            self._spawn(self._keep(line))

    def _spawn(self, work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]] | None = None) -> None:
        """A task of this upstream; `run` ends it, unless it is `among` those that close, and waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        tasks = self._tasks if among is None else among
        tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The boundary: a mistake of ours in one upstream's task must not end the others.
            log.error("upstream %r: %s", self.name, error, exc_info=error)

    async def _keep(self, line: _Line) -> None:
        """Connect when wanted, serve until lost, pause, again."""
        now = asyncio.get_running_loop().time
        while not self._is_stopped():
            began = now()
            line.wanted.clear()
            try:
                await self._connect(line)
            except (LinkError, HandshakeError) as error:
                if self._passed_on(line, error):
                    line.running = False
                    return
                line.failures += 1
                self._failed(line, str(error))
            except Exception as error:  # the boundary: whoever waits must hear of our mistake, and the next try may do
                log.exception("Failed")
                line.failures += 1
                self._failed(line, f"foretool itself made a mistake ({type(error).__name__}); its log has more")
            else:
                await line.lost.wait()
                if not line.waiting:
                    line.wanted.clear()  # it was wanted before this connection stood
                line.failures = 0 if now() - began > STABLE_S else line.failures + 1
            if self._is_stopped():
                return
            self._end(line)
            if self.speaks.get(line.era) is False and not line.waiting:
                line.running = False  # what is left of a connection that turned out to be of the other era
                return
            # One that was put to rest comes back when it is wanted, one that was lost by itself as well.
            pause = None if self.state is State.KNOWN else BACKOFF_S[min(line.failures, len(BACKOFF_S) - 1)]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await line.wanted.wait()

    async def _connect(self, line: _Line) -> None:
        self.error = ""  # whoever waits for this attempt must not be told of the last one
        self._set(State.STARTING)
        self.starts += 1
        line.lost = asyncio.Event()
        connection = Connection(line.era, _Events(self, line))
        line.connection = connection
        connection.attach(await self._open_link(connection, line.era))
        try:
            await connection.handshake(self._capabilities(line.era))
        except HandshakeError as error:
            if line.era == "legacy" or error.code == jsonrpc.UNSUPPORTED_VERSION or connection.pid is None:
                raise
            # The probe of a legacy process failed as it should; greet the same process the old way.
            connection.era = "legacy"
            await connection.handshake(self._capabilities("legacy"))
            self.speaks["modern"] = False
            line = self._move(line)
            self._carry_over("modern", "legacy", asked=True)  # below, with all the rest
        self.speaks[line.era] = True
        self.server_info = connection.server_info
        self.error = ""
        self._set(State.READY)
        self._send_waiting(line, connection)
        self._renew(connection)
        await self._list(connection)

    def _renew(self, connection: Connection) -> None:
        """What a fresh connection has to be told again."""
        if connection.era == "modern":
            self._listen_to(connection)
            return
        if self._log_level:
            self._own(connection, "logging/setLevel", {"level": self._log_level})
        for uri in sorted(self._wanted["legacy"]):
            self._own(connection, "resources/subscribe", {"uri": uri})

    def _listen_to(self, connection: Connection) -> None:
        """One listen for list changes and all resources wanted (modern). It is opened before the one it replaces ends,
        so that nothing is missed between them."""
        before = self._listen
        wanted: dict[str, Any] = {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}
        if self._wanted["modern"]:
            wanted["resourceSubscriptions"] = sorted(self._wanted["modern"])
        ended = partial(self._listen_ended, connection)
        self._listen = connection.tell("subscriptions/listen", {"notifications": wanted}, ended)
        if before is not None:
            connection.cancel(before, "replaced")

    def _listen_ended(self, connection: Connection, reply: Reply) -> None:
        """A subscription ends with its server, or a proxy between us cuts it off: listen again after a pause."""
        is_refused = isinstance(reply, Message) and reply.error is not jsonrpc.UNSET
        if connection.ready and not is_refused:
            asyncio.get_running_loop().call_later(LISTEN_AGAIN_S, self._listen_again, connection)

    def _listen_again(self, connection: Connection) -> None:
        if connection.ready:
            self._listen_to(connection)
            self.relist(connection)  # what changed meanwhile was not announced to us

    def _own(self, connection: Connection, method: str, params: dict[str, Any]) -> Request:
        """A request of ours whose answer tells nothing that matters."""
        return connection.tell(method, params)

    def _move(self, line: _Line) -> _Line:
        """The connection turned out to be of the other era: swap the two lines' places."""
        other = self._lines["legacy"]
        other.era, line.era = line.era, other.era
        if other.connection is not None and not other.connection.in_flight:
            other.lost.set()  # one connection serves both eras' clients from now on
        self._lines = {line.era: line, other.era: other}
        line.waiting.extend(other.waiting)
        other.waiting.clear()
        return line

    def _passed_on(self, line: _Line, error: Exception) -> bool:
        """The upstream does not speak this era: let the other line serve who waits. False: it is simply down."""
        if not isinstance(error, HandshakeError) or error.code is None:
            return False
        other = self._lines["modern" if line.era == "legacy" else "legacy"]
        if self.speaks.get(line.era) and error.code not in _ANOTHER_NOW:
            return False
        if self.speaks.get(other.era) is False:
            # As far as is known it speaks neither: that was of another version of it, or it is broken.
            del self.speaks[other.era]
            if not self.speaks.get(line.era):
                return False
        self.speaks[line.era] = False
        other.failures = line.failures
        self._carry_over(line.era, other.era)
        connection, line.connection = line.connection, None
        if connection is not None:
            self._spawn(connection.close(), self._closing)
        self._hand_over(line, other)
        if other.connection is not None and other.connection.ready:
            self._send_waiting(other, other.connection)
        else:
            self._want(other)
        return True

    def _carry_over(self, era: Era, other: Era, asked: bool = False) -> None:
        """It does not speak this era: the connection of the other one carries what was wanted of it."""
        wanted, self._wanted[era] = self._wanted[era], set()
        self.subscribe(other, wanted, asked)

    def _hand_over(self, line: _Line, other: _Line) -> None:
        """Who waits for one line waits for the other, with what a request says of its sender in that line's era."""
        other.waiting.extend(line.waiting)
        line.waiting.clear()

    def _send_waiting(self, line: _Line, connection: Connection) -> None:
        while line.waiting:
            connection.send(line.waiting.popleft())

    def _failed(self, line: _Line, reason: str) -> None:
        self.error = reason = self._redact(reason)
        self._set(State.RETRYING)
        self._fail_waiting(line, reason)

    def _fail_waiting(self, line: _Line, reason: str) -> None:
        waiting, line.waiting = line.waiting, deque()
        for request in waiting:
            request.reply(Lost(reason, sent=False))

    def _end(self, line: _Line) -> None:
        """Let go of the connection; what is left of it ends beside us, so that the next one need not wait."""
        connection, line.connection = line.connection, None
        if connection is not None:
            self._stderr = connection.stderr() or self._stderr
            self._spawn(connection.close(), self._closing)

    def _set(self, state: State) -> None:
        # Stopped is for ever: what fails because it was stopped must not start it again.
        if state is not self.state and self.state is not State.STOPPED:
            self.state, self.since = state, time.time()
            self._host.on_state(self)

    # -- its tools

    async def _list(self, connection: Connection) -> None:
        """Ask for its tools and report them; a broken list is an error of this upstream alone."""
        if connection.server_info.capabilities and "tools" not in connection.server_info.capabilities:
            self._host.on_tools(self, [])
            return
        tools: list[Raw] = []
        params: dict[str, Any] = {}
        try:
            for _ in range(PAGES):
                patience = LONG_LIST_S if self._failed_lists else LIST_S
                result = await connection.ask_raw("tools/list", params, patience)
                page = jsonrpc.fields(result)
                tools += _items(page.get("tools"))
                cursor = jsonrpc.text(page.get("nextCursor"))
                if not cursor:
                    break
                params = {"cursor": cursor}
        except (HandshakeError, LinkError, ValueError) as error:
            if connection.ready:
                self._unlisted(f"its tools could not be listed: {error}")
            return
        if self._failed_lists:
            log.info("upstream %r has listed its tools, after %d failures", self.name, self._failed_lists)
            self._failed_lists, self.error = 0, ""
            self._set(State.READY)
        self._host.on_tools(self, tools)

    def _unlisted(self, reason: str) -> None:
        """Say so, and ask again after a pause."""
        self.error = self._redact(reason)
        if self.state is State.UNLISTED:
            self._host.on_state(self)  # somebody may wait for this attempt
        else:
            self._set(State.UNLISTED)
        pause = LIST_AGAIN_S[min(self._failed_lists, len(LIST_AGAIN_S) - 1)]
        self._failed_lists += 1
        if self._list_again is not None:
            self._list_again.cancel()
        self._list_again = asyncio.get_running_loop().call_later(pause, self._ask_again)

    def _ask_again(self) -> None:
        """Over one connection; a new one asks by itself."""
        self._list_again = None
        if self.state is State.UNLISTED and (connection := self._ready("legacy") or self._ready("modern")):
            self._spawn(self._list(connection))

    def relist_all(self) -> None:
        """Ask for its tools again; the filters of its config may have changed."""
        for line in self._lines.values():
            if line.connection is not None and line.connection.ready:
                self.relist(line.connection)

    def relist(self, connection: Connection) -> None:
        """Ask for its tools again soon; announcements in the meantime are folded into one."""
        if self._relist is None:
            loop = asyncio.get_running_loop()
            self._relist = loop.call_later(DEBOUNCE_S, self._relist_now, connection)

    def _relist_now(self, connection: Connection) -> None:
        self._relist = None
        if connection.ready:
            self._spawn(self._list(connection))


def _items(value: Raw | None) -> list[Raw]:
    """The members of a raw array. Raises ValueError when it is none."""
    if value is None:
        raise ValueError("the answer holds no list of tools")
    return jsonrpc.items(value)


class _Events(Struct, eq=False):
    """What one connection tells, on its way to the host."""

    upstream: Upstream
    line: _Line

    def on_notification(self, message: Message) -> None:
        connection = self.line.connection
        if message.method == "notifications/tools/list_changed" and connection is not None:
            self.upstream.announced = True
            self.upstream.relist(connection)
        else:
            self.upstream._host.on_notification(self.upstream, message, self.line.era)

    def on_request(self, message: Message, request: Request | None, answer: Callable[[Message], None]) -> None:
        self.upstream._host.on_request(self.upstream, message, request, answer)

    def on_invalid_line(self, line: bytes) -> None:
        self.upstream.invalid_lines += 1

    def on_unhandled(self, request: Request) -> None:
        if request.method in ("initialize", "server/discover"):
            request.reply(Lost("its session had expired", sent=False))
        else:
            self.line.waiting.append(request)
            self.upstream._want(self.line)

    def on_lost(self, connection: Connection, reason: str) -> None:
        self.upstream.error = self.upstream._redact(reason)
        self.upstream._set(State.RETRYING)
        self.line.lost.set()
