"""One upstream: it starts when wanted, does its handshake, lists its tools, serves requests, and comes back when lost.

An upstream has at most one connection per era in use. A request of a client goes to the connection of the client's own
era if the upstream speaks it, else to the other one; then the proxy translates.

`Upstream` is over 300 lines: its state, its two lines and its restarts change together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import replace

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Message, Raw
from foretool.server.protocol.lists import TOOLS, ListKind
from foretool.server.protocol.translate import unite
from foretool.server.protocol.versions import ERAS, other_era
from foretool.server.transports.tasks import Tasks
from foretool.server.transports.upstream.base import Link, LinkError, Receiver
from foretool.server.upstreams.connection import Connection, HandshakeError, Lost, Reply, Request, ServerInfo
from foretool.server.upstreams.line import Line, note_refusal
from foretool.server.upstreams.server_list import ListLimit, ServerList
from foretool.server.upstreams.subscriptions import UpstreamSubscriptions
from foretool.storage.records import Era

if TYPE_CHECKING:
    from foretool.server.signin.bearer import Bearer

BACKOFF_S: Final = (0.2, 1.0, 3.0, 10.0, 30.0, 60.0)
"""Pauses before an upstream that nobody calls is restarted; the last one repeats. A call restarts it at once."""

_STABLE_S: Final = 10.0
"""An upstream that is lost within this time after its start counts as one that failed to start."""

_MOST_REASON: Final = 1000
"""Characters of a reason that are kept and shown."""

log = logging.getLogger("foretool.upstream")


class State(Enum):
    KNOWN = "known"
    """Not started; its tools are known from an earlier run."""
    STARTING = "starting"
    READY = "ready"
    UNLISTED = "unlisted"
    """Up, but listing its tools failed. The tools it listed before stay, and it is asked again after a pause."""
    RETRYING = "retrying"
    """Lost, or failed to start. It is restarted after a pause, and at once when somebody calls it."""
    STOPPED = "stopped"


class Host(Protocol):
    """Takes what upstreams report."""

    async def on_listed(self, upstream: Upstream, kind: ListKind, members: Sequence[Raw]) -> None: ...

    def on_unlisted(self, upstream: Upstream, kind: ListKind, reason: str) -> None:
        """A list other than that of its tools failed. It is asked for again by itself."""

    def on_state(self, upstream: Upstream) -> None:
        """The state or the error of the upstream has changed."""

    def on_notification(self, upstream: Upstream, message: Message, era: Era) -> None:
        """A notification that belongs to no request came on the connection of this era."""

    def on_request(
        self, upstream: Upstream, message: Message, request: Request | None, answer: Callable[[Message], None]
    ) -> None:
        """The upstream asks the client of `request`; None if that request cannot be told."""


class User(Protocol):
    """A client that calls."""

    @property
    def says_goodbye(self) -> bool:
        """Whether we learn that it has gone; otherwise it counts as gone when it has not called for a while."""
        ...


OpenLink = Callable[[Receiver, Era], Awaitable[Link]]
Connect = Callable[[Era, "Upstream"], Connection]
"""Makes a connection whose link is not there yet."""


class Upstream:
    """One server behind the proxy. `run` owns all of its tasks; `request` may be called at any time.

    `open_link` starts or reaches the server, `redact` takes secrets out of error texts, `capabilities` returns what we
    declare in a handshake of the given era, `connect` makes its connections. `timeout_s` limits each request; 0 means
    no limit. `kinds`: the lists that are asked for.
    """

    is_personal = False
    """People reach it with tokens of their own: this is one person's connection, or stands for all of them."""
    comes_back = True
    """It is restarted by itself when it was lost."""
    has_listed: bool | None = None
    """Whether it has listed its tools to its one person; None where it lists them to everybody."""

    def __init__(
        self,
        name: str,
        host: Host,
        open_link: OpenLink,
        timeout_s: float = 60.0,
        redact: Callable[[str], str] = str,
        *,
        capabilities: Callable[[Era], dict[str, Any]] = lambda era: {},
        list_limit: Callable[[], ListLimit] = ListLimit,
        kinds: Sequence[ListKind] = (TOOLS,),
        bearer: Bearer | None = None,
        connect: Connect = Connection,
    ) -> None:
        self.name = name
        self.key = name
        """Tells it from every other connection, also from those of other people to the same server."""
        self.bearer = bearer
        """Has the token of a remote server; None where there is none to have."""
        self.state = State.KNOWN
        self.since = time.time()
        """When the state was entered, in seconds of the system clock."""
        self.error = ""
        self.starts = 0
        self.used_at = 0.0
        """When the last request was sent, in monotonic seconds."""
        self.up_at = 0.0
        """When it last became ready, in monotonic seconds."""
        self.least_pause_s = 0.0
        """The pause before it is started again, at least; a call starts it at once."""
        self.users: set[User] = set()
        """The clients that have called it and have not gone. It may keep something for them, such as an open page."""
        self.invalid_lines = 0
        """Stdout lines that were not valid JSON-RPC."""
        self.server_info = ServerInfo()
        self.speaks: dict[Era, bool] = {}
        """The eras that the upstream is known to speak, or not to speak."""
        self.timeout_s = timeout_s
        self._host = host
        self._open_link = open_link
        self._redact = redact if bearer is None else lambda text: bearer.redact(redact(text))
        self._capabilities = capabilities
        self._make_connection = connect
        self._lines = {era: Line(era) for era in ERAS}
        self._tasks = Tasks(f"upstream {name!r}")
        self._closing = Tasks(f"upstream {name!r}")
        """They end connections and are never cancelled: a child that nobody waits for becomes a zombie."""
        self.lists = {
            kind: ServerList(
                name, self._ready_connections, self._tasks, partial(self._on_listed, kind),
                partial(self._on_unlisted, kind), list_limit, kind,
            )
            for kind in kinds
        }  # fmt: skip
        self.subscriptions = UpstreamSubscriptions(lambda era: self._lines[era].ready, self._ask_soon)
        self._stopped = asyncio.Event()
        self._stderr: tuple[str, ...] = ()

    # -- what it is

    @property
    def is_up(self) -> bool:
        return self.state in (State.READY, State.UNLISTED)

    @property
    def is_loading(self) -> bool:
        """Whether a launcher is still downloading the server."""
        return any(link.is_loading for link in self._links())

    @property
    def has_failed(self) -> bool:
        """Whether its last attempt to start failed, or its last connection was lost soon: it may be trying again."""
        return any(line.failures for line in self._lines.values())

    @property
    def needs_sign_in(self) -> bool:
        """Whether the server refuses us until a person signs in."""
        return self.bearer is not None and self.bearer.needs_sign_in

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(link.pid for link in self._links() if link.pid is not None)

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last stderr lines of the running process, or of the one that ended."""
        return next((lines for link in self._links() if (lines := link.stderr())), self._stderr)

    @property
    def noise(self) -> str:
        """What the running process wrote in place of messages, in words; "" if it did not."""
        return next((text for connection in self._connections() if (text := connection.noise)), "")

    @property
    def in_flight(self) -> int:
        return sum(connection.in_flight for connection in self._connections())

    @property
    def list_problem(self) -> str:
        """What was left out of its list of tools, "" if nothing was."""
        return self.lists[TOOLS].cut

    def askers(self) -> list[Request]:
        """Return the requests in flight in whose course the upstream may speak."""
        return [request for connection in self._connections() for request in connection.askers()]

    def spoken_era(self, *, lacking: bool = False) -> Era | None:
        """Return the era that the upstream is known to speak, or not to speak (`lacking`); None while that is
        unknown."""
        return next((era for era, does in reversed(self.speaks.items()) if does is not lacking), None)

    def era_for(self, era: Era) -> Era:
        """Return the era in which a client of `era` is served."""
        return era if self.speaks.get(era, True) else other_era(era)

    def _connections(self) -> list[Connection]:
        return [line.connection for line in self._lines.values() if line.connection is not None]

    def _links(self) -> list[Link]:
        return [connection.link for connection in self._connections() if connection.link is not None]

    def _ready_connections(self) -> list[Connection]:
        return [connection for line in self._lines.values() if (connection := line.ready) is not None]

    def of(self, person: str) -> Upstream:
        """Return the connection that serves a person; "" for nobody who is known."""
        return self

    def drop_person(self, person: str) -> None:
        """End the connection of a person, whose token is no longer theirs; one that is of everybody stays."""

    # -- what it is asked

    def request(self, era: Era, request: Request) -> None:
        """Send now, or as soon as the upstream is up; start it if it is not. The reply comes exactly once."""
        if self.state is State.STOPPED:
            request.reply(Lost(f"upstream {self.name!r} is stopped", sent=False))
            return
        line = self._lines[self.era_for(era)]
        self.used_at = time.monotonic()
        connection = line.connection
        if connection is not None and connection.ready:
            connection.send(request)
        else:
            line.put(request)

    def ask(self, method: str, params: dict[str, Any], reply: Callable[[Reply], None]) -> bool:
        """Send a request of our own if the upstream is up. Returns whether it was sent."""
        for connection in self._ready_connections():
            connection.tell(method, params, reply)
            return True
        return False

    def cancel(self, request: Request, reason: str) -> None:
        for line in self._lines.values():
            line.cancel(request, reason)

    def expire(self) -> None:
        """Give up requests whose deadline has passed; called about once a second."""
        now = time.monotonic()
        for line in self._lines.values():
            line.expire(now)

    def notify(self, era: Era, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification if there is a connection for clients of this era."""
        if (connection := self._lines[self.era_for(era)].ready) is not None:
            connection.notify(method, params)

    def relist_all(self) -> None:
        """Ask for its lists again; the filters of its config may have changed."""
        for connection in self._ready_connections():
            self._ask_soon(connection)

    def want_list(self, kind: ListKind, era: Era) -> bool:
        """Ask for a list that somebody wants, as it is now; start the server if it is down and the list is not known.
        Returns whether an answer may come."""
        wanted = self.lists[kind]
        wanted.is_wanted = True
        if self._ready_connections():
            return wanted.refresh()
        is_worth_a_start = wanted.served is None and self.state is not State.STOPPED
        if is_worth_a_start:
            self.start(era)
        return is_worth_a_start

    # -- start and end

    def start(self, era: Era) -> None:
        """Bring it up without waiting for a request."""
        self._lines[self.era_for(era)].wanted.set()

    def rest(self) -> None:
        """End the running process until it is wanted again, unless a request is in flight or a client subscribed."""
        if self.state is State.READY and not self.in_flight and not self.subscriptions:
            self._set(State.KNOWN)
            for line in self._lines.values():
                line.lost.set()

    async def run(self) -> None:
        """Serve until `stop` is called or the task is cancelled."""
        for line in self._lines.values():
            self._tasks.spawn(self._keep(line))
        try:
            await self._stopped.wait()
        finally:
            await self._tasks.close()
            await self._closing.close(cancel=False)

    async def stop(self) -> None:
        """End every connection and child process; requests in flight are lost."""
        self._set(State.STOPPED)
        for wanted in self.lists.values():
            wanted.close()
        for line in self._lines.values():
            line.fail_waiting("the upstream was stopped")
        await self._tasks.close()
        await asyncio.gather(*(connection.close() for connection in self._connections()))
        self._stopped.set()

    def _set(self, state: State) -> None:
        # Stopped is final: what fails because of the stop must not restart the upstream.
        if state is not self.state and self.state is not State.STOPPED:
            self.state, self.since = state, time.time()
            self._host.on_state(self)

    # -- keeping a line connected

    async def _keep(self, line: Line) -> None:
        """Wait until the line is wanted, connect, serve until the connection is lost, pause, and repeat."""
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
                    self._failed(line, str(error))
            except Exception as error:  # the boundary: whoever waits must hear of our mistake, and a retry may succeed
                log.exception("upstream %r: its start failed", self.name)
                self._failed(line, f"foretool itself made a mistake ({type(error).__name__}); its log has more")
            else:
                await line.lost.wait()
                if not line.is_waited_for:
                    line.wanted.clear()  # set before this connection was ready
                line.failures = 0 if now() - began > _STABLE_S else line.failures + 1
            self._drop_connection(line)
            is_refused = self.speaks.get(line.era) is False and not line.is_waited_for
            if is_refused:
                line.wanted.clear()  # the upstream turned out to speak only the other era
            # What was put to rest, or needs a sign-in, comes back when it is wanted; what was lost also by itself.
            rests = is_refused or self.state is State.KNOWN or self.needs_sign_in or not self.comes_back
            pause = None if rests else max(BACKOFF_S[min(line.failures, len(BACKOFF_S) - 1)], self.least_pause_s)

    async def _connect(self, line: Line) -> None:
        self.error = ""  # whoever waits for this attempt must not be told of the last one
        self._set(State.STARTING)
        self.starts += 1
        line.lost = asyncio.Event()
        connection = line.connection = self._make_connection(line.era, self)
        link = connection.link = await self._open_link(connection, line.era)
        try:
            await connection.handshake(self._capabilities(line.era))
        except HandshakeError as error:
            if line.era == "legacy" or error.code == jsonrpc.UNSUPPORTED_VERSION or link.pid is None:
                raise
            # A legacy process refuses the modern probe, as it should; it gets the legacy handshake instead.
            connection.era = "legacy"
            await connection.handshake(self._capabilities("legacy"))
            self.speaks["modern"] = False
            self._swap(line)
        self.speaks[line.era] = True
        # Extensions may be declared in one era alone.
        spoken = (each.server_info.capabilities for each in self._ready_connections())
        declared = reduce(unite, spoken, connection.server_info.capabilities)
        self.server_info = replace(connection.server_info, capabilities=declared)
        self.error = ""
        self.up_at = time.monotonic()
        self._set(State.READY)
        line.send_waiting(connection)
        self.subscriptions.renew(connection)
        for kind, wanted in self.lists.items():
            if wanted.is_wanted and kind is not TOOLS:
                wanted.begin(connection)
        await self.lists[TOOLS].ask(connection)

    def _ask_soon(self, connection: Connection) -> None:
        for wanted in self.lists.values():
            if wanted.is_wanted:
                wanted.ask_soon(connection)

    def _swap(self, line: Line) -> None:
        """Swap the eras of the two lines: the connection of the modern one turned out to be legacy."""
        other = self._lines["legacy"]
        other.era, line.era = line.era, other.era
        self._lines = {line.era: line, other.era: other}
        if other.connection is not None and not other.connection.in_flight:
            other.lost.set()  # one connection serves the clients of both eras from now on
        line.take_over(other)
        self.subscriptions.move("modern", "legacy", asked=True)  # `renew` tells the connection

    def _pass_on(self, line: Line, error: Exception) -> bool:
        """Let the other line serve whoever waits, if the error says that the upstream does not speak this line's era.
        Returns False when the upstream is simply down."""
        code = error.code if isinstance(error, HandshakeError) else None
        if code is None or not note_refusal(self.speaks, line.era, code):
            return False
        other = self._lines[other_era(line.era)]
        other.failures = line.failures
        self.subscriptions.move(line.era, other.era)
        other.take_over(line)
        if (connection := other.ready) is not None:
            other.send_waiting(connection)
        else:
            other.wanted.set()
        return True

    def _failed(self, line: Line, reason: str) -> None:
        line.failures += 1
        self.error = reason = self._describe(reason)
        self._set(State.RETRYING)
        line.fail_waiting(reason)

    def _describe(self, reason: str) -> str:
        """Return a reason without secrets; it may quote megabytes of the server's own words."""
        return self._redact(reason[:_MOST_REASON])[:_MOST_REASON]

    def _drop_connection(self, line: Line) -> None:
        """Let go of a connection that was lost; it ends in a task of its own, so that the next one need not wait."""
        connection, line.connection = line.connection, None
        if connection is not None:
            self._stderr = (connection.link.stderr() if connection.link else ()) or self._stderr
            self._closing.spawn(connection.close())

    # -- ConnectionEvents: what its connections tell

    def on_notification(self, connection: Connection, message: Message) -> None:
        changed = [each for each in self.lists.values() if each.kind.change == message.method and each.is_wanted]
        for each in changed:
            each.follow_change(connection)
        if not changed:
            self._host.on_notification(self, message, connection.era)

    def on_request(self, message: Message, request: Request | None, answer: Callable[[Message], None]) -> None:
        self._host.on_request(self, message, request, answer)

    def on_invalid_line(self, line: bytes) -> None:
        self.invalid_lines += 1

    def on_unhandled(self, connection: Connection, request: Request) -> None:
        if request.method in ("initialize", "server/discover"):
            request.reply(Lost("its session had expired", sent=False))
        else:
            self.request(connection.era, request)

    def on_lost(self, connection: Connection, reason: str) -> None:
        line = self._line_of(connection)
        if line is None:
            return  # it was let go of before, and another one takes its place
        if not reason:
            log.info("upstream %r: its session had expired; a new one begins", self.name)
        self.error = self._describe(reason)
        self._set(State.RETRYING)
        line.lost.set()

    def _line_of(self, connection: Connection) -> Line | None:
        # By identity: during a probe the era of a connection is not yet that of its line.
        return next((line for line in self._lines.values() if line.connection is connection), None)

    # -- what its lists tell

    async def _on_listed(self, kind: ListKind, members: Sequence[Raw]) -> None:
        if kind is TOOLS and self.state is State.UNLISTED:
            self.error = ""
            self._set(State.READY)
        await self._host.on_listed(self, kind, members)

    def _on_unlisted(self, kind: ListKind, reason: str) -> None:
        if kind is not TOOLS:
            self._host.on_unlisted(self, kind, self._describe(reason))
            return
        self.error = self._describe(reason)
        if self.state is State.UNLISTED:
            self._host.on_state(self)  # somebody may wait for this attempt
        else:
            self._set(State.UNLISTED)
