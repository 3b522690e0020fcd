"""One upstream: it starts when wanted, does its handshake, lists its tools, serves requests, and comes back when lost.

An upstream has at most one connection per era in use (`lines`). A request of a client goes to the connection of the
client's own era if the upstream speaks it, else to the other one; then the proxy translates.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import replace

from foretool.server.protocol.jsonrpc import Message, Raw
from foretool.server.protocol.lists import TOOLS, ListKind
from foretool.server.protocol.translate import ANY_CLIENT, unite
from foretool.server.transports.tasks import Tasks
from foretool.server.upstreams.connection import Connection, Lost, Reply, Request, ServerInfo
from foretool.server.upstreams.lines import Connect, Line, Lines, OpenLink
from foretool.server.upstreams.server_list import ListLimit, ServerList
from foretool.server.upstreams.subscriptions import UpstreamSubscriptions
from foretool.storage.records import Era, ToolId

if TYPE_CHECKING:
    from foretool.server.signin.bearer import Bearer

_MOST_REASON: Final = 1000
"""Characters of a reason that are kept and shown."""
_MOST_TOLD_AGAIN: Final = 3
"""How often a run starts a server again for clients that can do more: they may come and go."""

log = logging.getLogger("foretool.upstream")


LISTS_NONE: Final = 'its documentation may say what it needs first, such as a key in "env" of its entry'
"""What to do about a server that works and lists no tools."""


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
    """A client that sends requests to an upstream."""

    @property
    def says_goodbye(self) -> bool:
        """Whether we learn that it has gone; otherwise it counts as gone when it has not called for a while."""
        ...


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
        self.users: set[User] = set()
        """The clients that have called it and have not gone. It may keep something for them, such as an open page."""
        self.lists_by_client = False
        """What it lists depends on what its clients can do."""
        self._declared: dict[str, Any] | None = None
        """What it was told of that, for its latest list of tools."""
        self._times_told_again = 0
        self.invalid_lines = 0
        """Stdout lines that were not valid JSON-RPC."""
        self.server_info = ServerInfo()
        self.timeout_s = timeout_s
        self._host = host
        self._redact = redact if bearer is None else lambda text: bearer.redact(redact(text))
        self.lines = Lines(name, self, open_link, capabilities, connect)
        self.era_for = self.lines.era_for
        self._tasks = Tasks(f"upstream {name!r}")
        self.lists = {
            kind: ServerList(
                name, self.lines.ready, self._tasks, partial(self._on_listed, kind),
                partial(self._on_unlisted, kind), list_limit, kind,
            )
            for kind in kinds
        }  # fmt: skip
        self.subscriptions = UpstreamSubscriptions(self.lines.ready_in, self._ask_soon)
        self._stopped = asyncio.Event()

    # -- what it is

    @property
    def is_up(self) -> bool:
        return self.state in (State.READY, State.UNLISTED)

    @property
    def is_loading(self) -> bool:
        """Whether a launcher is still downloading the server."""
        return any(link.is_loading for link in self.lines.links())

    @property
    def has_failed(self) -> bool:
        """Whether its last attempt to start failed, or its last connection was lost soon: it may be trying again."""
        return any(line.failures for line in self.lines)

    @property
    def needs_sign_in(self) -> bool:
        """Whether the server refuses requests until a person signs in."""
        return self.bearer is not None and self.bearer.needs_sign_in

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(link.pid for link in self.lines.links() if link.pid is not None)

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last stderr lines of the running process, or of the one that ended."""
        return self.lines.stderr

    @property
    def in_flight(self) -> int:
        return sum(connection.in_flight for connection in self.lines.connections())

    @property
    def list_problem(self) -> str:
        """What was left out of its list of tools, "" if nothing was."""
        return self.lists[TOOLS].cut

    def of(self, person: str) -> Upstream:
        """Return the connection that serves a person; "" for nobody who is known."""
        return self

    def drop_person(self, person: str) -> None:
        """End the connection of a person, whose token is no longer theirs; one that is of everybody stays."""

    # -- what it is asked

    def request(self, era: Era, request: Request) -> None:
        """Send now, or as soon as the upstream is up; start it if it is not. The reply comes exactly once."""
        if self.state is State.STOPPED:
            request.reply(Lost("it is stopped", sent=False))
            return
        line = self.lines.line_for(era)
        self.used_at = time.monotonic()
        connection = line.connection
        if connection is not None and connection.ready:
            connection.send(request)
        else:
            line.put(request)

    def ask(self, method: str, params: dict[str, Any], reply: Callable[[Reply], None]) -> bool:
        """Send a request of our own if the upstream is up. Returns whether it was sent."""
        for connection in self.lines.ready():
            connection.tell(method, params, reply)
            return True
        return False

    def cancel(self, request: Request, reason: str) -> None:
        for line in self.lines:
            line.cancel(request, reason)

    def expire(self, asleep_s: float = 0.0) -> None:
        """Give up requests whose deadline has passed; called about once a second. `asleep_s`: for how long nobody could
        look for answers, and servers may have slept too. Nobody's time is over because of that."""
        now = time.monotonic()
        for line in self.lines:
            line.expire(now, asleep_s)

    def notify(self, era: Era, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification if there is a connection for clients of this era."""
        if (connection := self.lines.line_for(era).ready) is not None:
            connection.notify(method, params)

    def relist_all(self) -> None:
        """Ask for its lists again; the filters of its config may have changed."""
        for connection in self.lines.ready():
            self._ask_soon(connection)

    def want_list(self, kind: ListKind, era: Era) -> bool:
        """Ask for a list that somebody wants, as it is now; start the server if it is down and the list is not known.
        Returns whether an answer may come."""
        wanted = self.lists[kind]
        wanted.is_wanted = True
        if self.lines.ready():
            return wanted.refresh()
        is_worth_a_start = wanted.served is None and self.state is not State.STOPPED
        if is_worth_a_start:
            self.start(era)
        return is_worth_a_start

    # -- start and end

    def start(self, era: Era) -> None:
        """Bring it up without waiting for a request."""
        self.lines.line_for(era).wanted.set()

    def rest(self) -> None:
        """End the running process until it is wanted again, unless a request is in flight or a client subscribed."""
        if self.state is State.READY and not self.in_flight and not self.subscriptions:
            self._set(State.KNOWN)
            for line in self.lines:
                line.lost.set()

    def note_tools(self, before: Collection[ToolId], now: Collection[ToolId]) -> None:
        """Compare the tools that the server lists now with those known `before`, to find out whether its list depends
        on its client's capabilities. Sets `lists_by_client` if it seems so. A command starts servers as a client that
        can do everything, so fewer tools than before suggest it; a new version of a server has both fewer and other
        ones."""
        declared = next((each.declared for each in self.lines.ready()), {})
        was_told, self._declared = self._declared, declared
        is_fewer = set(now) < set(before) and declared != ANY_CLIENT
        is_other = bool(before) and set(before) != set(now) and declared != was_told
        if is_fewer if was_told is None else is_other:
            self.lists_by_client = True

    def tell_again(self) -> None:
        """Restart the server if a client has come that can do more than the server was told, but only where no work is
        lost for nothing: nobody has called it since its start, or its list is known to depend on the client."""
        if self.state is State.READY and self._times_told_again < _MOST_TOLD_AGAIN:
            self._times_told_again += self.lines.tell_again(even_called=self.lists_by_client)

    async def run(self) -> None:
        """Serve until `stop` is called or the task is cancelled."""
        for line in self.lines:
            self._tasks.spawn(self.lines.keep(line))
        try:
            await self._stopped.wait()
        finally:
            await self._tasks.close()
            await self.lines.wait_closed()

    async def stop(self) -> None:
        """End every connection and child process; requests in flight are lost."""
        self._set(State.STOPPED)
        for wanted in self.lists.values():
            wanted.close()
        for line in self.lines:
            line.fail_waiting("it was stopped")
        await self._tasks.close()
        await self.lines.end()
        self._stopped.set()

    def _set(self, state: State) -> None:
        # Stopped is final: what fails because of the stop must not restart the upstream.
        if state is not self.state and self.state is not State.STOPPED:
            self.state, self.since = state, time.time()
            self._host.on_state(self)

    # -- LineEvents: what its lines tell

    @property
    def rests(self) -> bool:
        # What was put to rest, or needs a sign-in, comes back when it is wanted; what was lost also by itself.
        return self.state is State.KNOWN or self.needs_sign_in or not self.comes_back

    def on_starting(self) -> None:
        self.error = ""  # whoever waits for this attempt must not be told of the last one
        self._set(State.STARTING)
        self.starts += 1

    async def on_connected(self, line: Line, connection: Connection) -> None:
        # Extensions may be declared in one era alone.
        spoken = (each.server_info.capabilities for each in self.lines.ready())
        declared = reduce(unite, spoken, connection.server_info.capabilities)
        self.server_info = replace(connection.server_info, capabilities=declared)
        self.error = ""
        self.up_at = time.monotonic()
        self._set(State.READY)
        self.subscriptions.renew(connection)  # first: what waits may change a resource
        line.send_waiting(connection)
        for kind, wanted in self.lists.items():
            if wanted.is_wanted and kind is not TOOLS:
                wanted.begin(connection)
        await self.lists[TOOLS].ask(connection)

    def on_moved(self, era: Era, other: Era, *, is_told: bool) -> None:
        self.subscriptions.move(era, other, asked=is_told)

    def on_failed(self, line: Line, reason: str) -> None:
        self.error = reason = self._describe(reason)
        if self.state is State.RETRYING:
            self._host.on_state(self)  # its loss was told before it counted as a failed start
        self._set(State.RETRYING)
        line.fail_waiting(reason)

    def _describe(self, reason: str) -> str:
        """Return a reason without secrets; it may quote megabytes of the server's own words."""
        return self._redact(reason[:_MOST_REASON])[:_MOST_REASON]

    def _ask_soon(self, connection: Connection) -> None:
        for wanted in self.lists.values():
            if wanted.is_wanted:
                wanted.ask_soon(connection)

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
        line = self.lines.find(connection)
        if line is None:
            return  # it was let go of before, and another one takes its place
        if not reason:
            log.info("upstream %r: its session had expired; a new one begins", self.name)
        self.error = self._describe(reason)
        self._set(State.RETRYING)
        line.lost.set()

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
