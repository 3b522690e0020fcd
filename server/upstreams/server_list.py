"""Asks an upstream for one of its lists: page by page, again after a pause when it fails, and soon after an
announcement.

All lists of a server (`protocol.lists`) are asked for in this way and have the same bounds. Tools are asked for
with every connection, the others once somebody wants them, and then with every connection as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.lists import TOOLS, ListKind, features
from foretool.server.transports.tasks import Tasks
from foretool.server.transports.upstream.base import LinkError
from foretool.server.upstreams.connection import Connection, HandshakeError

LIST_S: Final = 60.0
LONG_LIST_S: Final = 300.0
"""Longest wait for a page after a failed list: some upstreams look their tools up elsewhere, or wait for a log-in."""

LIST_AGAIN_S: Final = (1.0, 5.0, 15.0, 60.0, 300.0)
"""Pauses after a failed list; the last one repeats. Announcements do not wait for them."""

SOON_S: Final = 1.0
"""An upstream that answers within this time is waited for when a client lists; the answer goes without others."""

DEBOUNCE_S: Final = 0.1
"""An upstream that announces many changes within this time is asked once."""

_PAGES: Final = 1000
"""A list that is longer than this number of pages is cut: the upstream never ends it."""

_CHANGES: Final = 10
_CHANGE_S: Final = 5.0
"""An upstream that announces changes without end is asked this often at once, then once in this number of seconds. So
is one whose list clients ask for all the time."""


LONG: Final = 1 << 20
"""Bytes of a list that are looked at in about a millisecond."""


class ListLimit(NamedTuple):
    """How much of a list is used."""

    tools: int = 1000
    """How many members; the setting is named after tools."""
    size: int = 4 * 1024 * 1024
    """Bytes of all definitions together."""


log = logging.getLogger("foretool.upstream")


async def give_turn_after(size: int) -> None:
    """Let other tasks run once, if handling so many bytes took long."""
    if size >= LONG:
        await asyncio.sleep(0)


class ServerList:
    """Asks for one list of the upstream `name` and reports it to `on_listed`, or the reason to `on_failed`. `ready`
    returns the connections that can be asked."""

    def __init__(
        self,
        name: str,
        ready: Callable[[], Sequence[Connection]],
        tasks: Tasks,
        on_listed: Callable[[Sequence[Raw]], Awaitable[None]],
        on_failed: Callable[[str], None],
        limit: Callable[[], ListLimit] = ListLimit,
        kind: ListKind = TOOLS,
    ) -> None:
        self.kind = kind
        self.is_wanted = kind is TOOLS
        """Every new connection is asked for it."""
        self.cut = ""
        """What was left out of the last list, and how to have it."""
        self.is_announced = False
        """The upstream has announced a change since it last listed."""
        self.is_late = False
        """Nobody waits for it: the last time the upstream did not answer soon enough."""
        self.listed: Sequence[Raw] = ()
        self.served: Mapping[str, Raw] | None = None
        """What it listed last, and what of that is served, by what it is asked for; None before the first list. Tools
        are in the catalog instead."""
        self._name = name
        self._ready = ready
        self._tasks = tasks
        self._on_listed = on_listed
        self._on_failed = on_failed
        self._limit = limit
        self._changes, self._changes_at = float(_CHANGES), 0.0
        """How many announcements may be followed at once, and when that was counted."""
        self._failures = 0
        """Lists in a row that failed."""
        self._asking = self._taking_in = 0
        """How often it is being asked for, and how many answers are being taken in."""
        self._is_outdated = False
        """What it is being asked for has changed meanwhile."""
        self._soon: asyncio.TimerHandle | None = None
        self._later: asyncio.TimerHandle | None = None

    @property
    def is_coming(self) -> bool:
        """Whether an answer is on its way or being taken in."""
        return self._asking + self._taking_in > 0

    @property
    def is_failing(self) -> bool:
        """Whether the last list failed; it is asked for again by itself."""
        return self._failures > 0

    def is_declared(self, connection: Connection) -> bool:
        """Return whether the upstream declares this list; one that declares nothing at all has tools."""
        capabilities = connection.server_info.capabilities or {}
        return self.kind.capability in features(capabilities) or (self.kind is TOOLS and not capabilities)

    async def ask(self, connection: Connection) -> None:
        """Ask for the list and report it. A broken list is an error of this upstream alone."""
        self._asking += 1
        await self._ask(connection)

    def begin(self, connection: Connection) -> None:
        """Start a task that asks for the list and reports it."""
        self._asking += 1
        self._tasks.spawn(self._ask(connection))

    async def _ask(self, connection: Connection) -> None:
        if self._later is not None:
            self._later.cancel()
        if not self.is_declared(connection):  # extensions may be declared in one era alone
            connection = next((each for each in self._ready() if self.is_declared(each)), connection)
        began = asyncio.get_running_loop().time()
        try:
            members = await self._pages(connection)
        except (HandshakeError, LinkError, ValueError) as error:
            if connection.ready:
                self._failed(f"its {self.kind.noun} could not be listed: {error}")
            elif self.kind is not TOOLS:
                self.is_wanted = False  # one that ends when it is asked must not end again with every start
                self._on_failed(f"it ended while it was asked for its {self.kind.noun}")
            return
        finally:
            self._asking -= 1
        if self._failures:
            log.info("upstream %r has listed its %s, after %d failures", self._name, self.kind.noun, self._failures)
            self._failures = 0
        if self._is_outdated:
            self._is_outdated = False
            self.ask_soon(connection)
        self.is_late = asyncio.get_running_loop().time() - began > SOON_S
        self._taking_in += 1
        try:
            await self._on_listed(members)
        finally:
            self._taking_in -= 1

    async def _pages(self, connection: Connection) -> list[Raw]:
        if not self.is_declared(connection):
            return []
        members: list[Raw] = []
        self.cut = ""
        params: dict[str, Any] = {}
        cursors: set[int] = set()
        while len(cursors) < _PAGES:
            result = await self._page(connection, params)
            # Each look at a list of megabytes is a step of its own, so that calls go on in between.
            await give_turn_after(len(result))
            page = jsonrpc.fields(result)
            if self.kind.key not in page:
                raise ValueError(f"the answer holds no list of {self.kind.noun}")
            await give_turn_after(len(result))
            members += jsonrpc.items(page[self.kind.key])
            await give_turn_after(len(result))
            if self._cut(members):
                break
            cursor = jsonrpc.text(page.get("nextCursor"))
            if not cursor or hash(cursor) in cursors:
                break
            cursors.add(hash(cursor))  # the cursors themselves may be as long as a message
            params = {"cursor": cursor}
        return members

    async def _page(self, connection: Connection, params: dict[str, Any]) -> Raw:
        try:
            return await connection.ask_raw(self.kind.method, params, LONG_LIST_S if self._failures else LIST_S)
        except HandshakeError as error:
            # Many servers declare prompts or resources and have none.
            if error.code != jsonrpc.METHOD_NOT_FOUND or self.kind is TOOLS:
                raise
            return jsonrpc.raw({self.kind.key: []})

    def _cut(self, members: list[Raw]) -> bool:
        """Drop what is over the limit from the end of a list. Returns whether anything was dropped."""
        limit, size, kept = self._limit(), 0, 0
        for member in members[: limit.tools]:
            size += len(member)
            if size > limit.size:
                break
            kept += 1
        if kept == len(members):
            return False
        del members[kept:]
        noun = self.kind.noun
        self.cut = f"it lists more than {kept} {noun}; only the first {kept} are used (raise max_tools to use more)"
        return True

    def _failed(self, reason: str) -> None:
        """Report the failure and ask again after a pause. A new connection asks by itself."""
        pause = LIST_AGAIN_S[min(self._failures, len(LIST_AGAIN_S) - 1)]
        self._failures += 1
        self._is_outdated = False
        if self._later is not None:
            self._later.cancel()
        self._later = asyncio.get_running_loop().call_later(pause, self._ask_now)
        self._on_failed(reason)

    def _ask_now(self) -> None:
        for connection in self._ready()[:1]:
            self.begin(connection)

    def refresh(self) -> bool:
        """Ask now, because a client wants the list. Returns whether an answer is on its way: not where it failed and
        waits for its pause, nor where clients ask for it all the time."""
        if self.is_coming or self.is_failing:
            return self.is_coming
        if self._soon is None and self._count_changes() >= 1:
            self._changes -= 1
            self._ask_now()
            return True
        return self._soon is not None

    def ask_soon(self, connection: Connection) -> None:
        """Ask once for all changes that come in the next moments."""
        self._ask_in(DEBOUNCE_S, connection)

    def follow_change(self, connection: Connection) -> None:
        """Ask soon, because the upstream has announced a change. The pause is longer if it does little besides
        announcing changes."""
        self.is_announced = True
        if self._soon is None:
            self._changes = self._count_changes() - 1
            self._ask_in(DEBOUNCE_S if self._changes >= 0 else -self._changes * _CHANGE_S, connection)

    def _count_changes(self) -> float:
        """Return how many changes may be followed now."""
        now = asyncio.get_running_loop().time()
        self._changes = min(self._changes + (now - self._changes_at) / _CHANGE_S, _CHANGES)
        self._changes_at = now
        return self._changes

    def _ask_in(self, pause: float, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        if self._soon is not None:
            if self._soon.when() <= loop.time() + pause:
                return
            self._soon.cancel()
        self._soon = loop.call_later(pause, self._ask_after_changes, connection)

    def _ask_after_changes(self, connection: Connection) -> None:
        self._soon = None
        if self._asking:
            self._is_outdated = True  # one that does not answer is not asked twice
        elif connection.ready:
            self.begin(connection)

    def close(self) -> None:
        """Ask no more."""
        for timer in (self._soon, self._later):
            if timer is not None:
                timer.cancel()
