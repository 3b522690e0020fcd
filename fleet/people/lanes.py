"""Servers that each person reaches with a token of their own: one connection, session and list of tools for each.

`PersonalUpstream` stands in the registry for all of them and is never connected itself. A `Lane` is the connection of
one person. Nothing of a lane goes to anybody else: not its session, its answers, its questions or its notifications.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from foretool.fleet.people.credentials import CredentialError, Credentials
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Message
from foretool.server.protocol.lists import ListKind
from foretool.server.signin.record import read_challenge
from foretool.server.transports.tasks import Tasks
from foretool.server.transports.upstream.base import Verdict
from foretool.server.transports.upstream.http_client import SendRefused
from foretool.server.upstreams.connection import Lost, Reply, Request, answer_error
from foretool.server.upstreams.lines import OpenLink
from foretool.server.upstreams.upstream import Host, State, Upstream
from foretool.storage.records import Era

IDLE_S: Final = 1800.0
"""A connection that its person has not used for this long is closed; the next call opens another."""
MOST_LANES: Final = 1000
"""Connections to one server; one more closes the one that was unused for longest."""
NOBODY: Final = "each person reaches it with a token of their own, so it needs a client that says who calls, over HTTP"


class PersonAuthorizer:
    """Gives the requests of one person to one server their token."""

    def __init__(self, credentials: Credentials, person: str) -> None:
        self._credentials = credentials
        self._person = person
        self.notice = ""

    async def authorization(self) -> str:
        try:
            return f"Bearer {await self._credentials.token(self._person)}"
        except CredentialError as error:
            raise SendRefused(str(error)) from None

    async def on_refused(self, status: int, header: str | None, sent: str) -> Verdict:
        if status == 403:
            if read_challenge(header).error != "insufficient_scope":
                return "other"
            self.notice = "it wants more scopes than the token of this person has; name them in scopes of per_user"
            return "refused"
        self.notice = "it refused a token that was just made for this person"
        is_new = self._credentials.drop(self._person, sent.removeprefix("Bearer "), self.notice)
        return "repeat" if is_new else "refused"

    def on_accepted(self, sent: str) -> None:
        self.notice = ""


class Lane(Upstream):
    """The upstream of one person at one server, connected with that person's token."""

    is_personal = True
    comes_back = False

    def __init__(self, person: str, name: str, host: Host, open_link: OpenLink, *more: Any, **options: Any) -> None:
        super().__init__(name, host, open_link, *more, **options)
        self.person = person
        self.key = f"{name}\x1f{person}"
        self.has_listed = False
        """This person's list of tools is known, in this process."""
        self.made_at = time.monotonic()


class PersonalUpstream(Upstream):
    """The upstream of a server that each person reaches with a token of their own. It has a `Lane` for each person and
    no connection itself."""

    is_personal = True
    comes_back = False

    def __init__(
        self, name: str, host: Host, make_lane: Callable[[str], Lane], credentials: Credentials, timeout_s: float = 60.0
    ) -> None:
        super().__init__(name, host, _never, timeout_s)
        self.credentials = credentials
        self._make_lane = make_lane
        self._lanes: OrderedDict[str, Lane] = OrderedDict()
        self._running = Tasks(f"people of {name!r}")

    def of(self, person: str) -> Upstream:
        """Return the connection of a person, which is opened when it is first wanted."""
        if not person or self.state is State.STOPPED:
            return self
        found = self._lanes.pop(person, None)
        if found is None:
            found = self._make_lane(person)
            found.users = self.users
            self._running.spawn(found.run())
        self._lanes[person] = found
        return found

    def drop_person(self, person: str) -> None:
        self.credentials.forget(person)
        if (found := self._lanes.pop(person, None)) is not None:
            self._running.spawn(found.stop())

    # What nobody gets without a token of their own

    def request(self, era: Era, request: Request) -> None:
        request.reply(Lost(NOBODY, sent=False))

    def ask(self, method: str, params: dict[str, Any], reply: Callable[[Reply], None]) -> bool:
        return False

    def notify(self, era: Era, method: str, params: dict[str, Any] | None = None) -> None:
        for lane in self._lanes.values():
            lane.notify(era, method, params)

    def start(self, era: Era) -> None:
        """Do nothing: without a person there is no token to connect with."""

    def rest(self) -> None:
        """Do nothing: it has no process."""

    def relist_all(self) -> None:
        for lane in self._lanes.values():
            lane.relist_all()

    # In the course of time

    @property
    def in_flight(self) -> int:
        return sum(lane.in_flight for lane in self._lanes.values())

    def expire(self, asleep_s: float = 0.0) -> None:
        """Give up requests whose deadline has passed, and close connections that nobody uses."""
        now = time.monotonic()
        for lane in self._lanes.values():
            lane.expire(asleep_s)
        free = [each for each in self._lanes.values() if not each.in_flight]
        idle = [each for each in free if now - max(each.used_at, each.up_at, each.made_at) > IDLE_S]
        for lane in (*idle, *free[: max(0, len(self._lanes) - MOST_LANES)]):
            if self._lanes.pop(lane.person, None) is not None:
                self._running.spawn(lane.stop())

    async def stop(self) -> None:
        lanes, self._lanes = list(self._lanes.values()), OrderedDict()
        for lane in lanes:
            await lane.stop()
        await self._running.close()
        await self.credentials.close()
        await super().stop()


class PersonalHost:
    """Takes what one person's connection reports, and keeps it from others."""

    def __init__(self, host: Host, on_tools: Callable[[Lane, Any], None], wake: Callable[[Upstream], None]) -> None:
        self._host = host
        self._on_tools = on_tools
        self._wake = wake

    async def on_listed(self, upstream: Upstream, kind: ListKind, tools: Any) -> None:
        assert isinstance(upstream, Lane)
        self._on_tools(upstream, tools)

    def on_unlisted(self, upstream: Upstream, kind: ListKind, reason: str) -> None:
        """Do nothing: tools alone are asked for."""

    def on_state(self, upstream: Upstream) -> None:
        if upstream.error:
            self._wake(upstream)

    def on_notification(self, upstream: Upstream, message: Message, era: Era) -> None:
        # Only what takes back a question, or ends one, is about a client that is known to be this person's.
        if message.method in ("notifications/cancelled", "notifications/elicitation/complete"):
            self._host.on_notification(upstream, message, era)

    def on_request(
        self, upstream: Upstream, message: Message, request: Request | None, answer: Callable[[Message], None]
    ) -> None:
        if request is None:
            reason = f"{message.method}: it cannot be told which request of this person it is about"
            ident = message.id if isinstance(message.id, int | str) else None
            answer(answer_error(ident, jsonrpc.METHOD_NOT_FOUND, reason))
        else:
            self._host.on_request(upstream, message, request, answer)


async def _never(*_: Any) -> Any:
    raise AssertionError("a server with a token for each person was reached without one")
