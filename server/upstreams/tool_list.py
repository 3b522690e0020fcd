"""Asks an upstream for its tools: page by page, again after a pause when it fails, and soon after an announcement."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.transports.tasks import Tasks
from foretool.server.transports.upstream.base import LinkError
from foretool.server.upstreams.connection import Connection, HandshakeError

LIST_S: Final = 60.0
LONG_LIST_S: Final = 300.0
"""Longest wait for a page after a failed list: some upstreams look their tools up elsewhere, or wait for a log-in."""

LIST_AGAIN_S: Final = (1.0, 5.0, 15.0, 60.0, 300.0)
"""Pauses after a failed list; the last one repeats. Announcements do not wait for them."""

DEBOUNCE_S: Final = 0.1
"""An upstream that announces many changes within this time is asked once."""

PAGES: Final = 1000
"""A list that is longer than this number of pages is cut: the upstream never ends it."""

CHANGES: Final = 10
CHANGE_S: Final = 5.0
"""An upstream that announces changes without end is asked this often at once, then once in this number of seconds."""


LONG: Final = 1 << 20
"""Bytes of a list that are looked at in about a millisecond."""


class ListLimit(NamedTuple):
    """How much of a list is used."""

    tools: int = 1000
    size: int = 4 * 1024 * 1024
    """Bytes of all definitions together."""


log = logging.getLogger("foretool.upstream")


async def give_turn_after(size: int) -> None:
    """Let everything else have its turn, if so many bytes take more than a moment."""
    if size >= LONG:
        await asyncio.sleep(0)


class ToolList:
    """Asks for the tools of the upstream `name` and reports them to `on_listed`, or the reason to `on_failed`. `ready`
    returns the connections that can be asked."""

    def __init__(
        self,
        name: str,
        ready: Callable[[], Sequence[Connection]],
        tasks: Tasks,
        on_listed: Callable[[Sequence[Raw]], Awaitable[None]],
        on_failed: Callable[[str], None],
        limit: Callable[[], ListLimit] = ListLimit,
    ) -> None:
        self._name = name
        self._ready = ready
        self._tasks = tasks
        self._on_listed = on_listed
        self._on_failed = on_failed
        self._limit = limit
        self.cut = ""
        """What was left out of the last list, and how to have it."""
        self._changes, self._changes_at = float(CHANGES), 0.0
        """How many announcements may be followed at once, and when that was counted."""
        self._failures = 0
        """Lists in a row that failed."""
        self._soon: asyncio.TimerHandle | None = None
        self._later: asyncio.TimerHandle | None = None

    async def ask(self, connection: Connection) -> None:
        """Ask for the tools and report them. A broken list is an error of this upstream alone."""
        if self._later is not None:
            self._later.cancel()
        try:
            tools = await self._pages(connection)
        except (HandshakeError, LinkError, ValueError) as error:
            if connection.ready:
                self._failed(f"its tools could not be listed: {error}")
            return
        if self._failures:
            log.info("upstream %r has listed its tools, after %d failures", self._name, self._failures)
            self._failures = 0
        await self._on_listed(tools)

    async def _pages(self, connection: Connection) -> list[Raw]:
        capabilities = connection.server_info.capabilities
        if capabilities and "tools" not in capabilities:
            return []
        tools: list[Raw] = []
        self.cut = ""
        params: dict[str, Any] = {}
        for _ in range(PAGES):
            result = await connection.ask_raw("tools/list", params, LONG_LIST_S if self._failures else LIST_S)
            # Each look at a list of megabytes is a step of its own, so that calls go on in between.
            await give_turn_after(len(result))
            page = jsonrpc.fields(result)
            if "tools" not in page:
                raise ValueError("the answer holds no list of tools")
            await give_turn_after(len(result))
            tools += jsonrpc.items(page["tools"])
            await give_turn_after(len(result))
            if self._cut(tools):
                break
            cursor = jsonrpc.text(page.get("nextCursor"))
            if not cursor:
                break
            params = {"cursor": cursor}
        return tools

    def _cut(self, tools: list[Raw]) -> bool:
        """Drop what is over the limit from the end of a list. Returns whether anything was dropped."""
        limit, size, kept = self._limit(), 0, 0
        for tool in tools[: limit.tools]:
            size += len(tool)
            if size > limit.size:
                break
            kept += 1
        if kept == len(tools):
            return False
        del tools[kept:]
        setting = "max_tools" if kept == limit.tools else "max_tools_mib"
        self.cut = f"it lists more than {kept} tools; only the first {kept} are used (raise {setting} to use more)"
        return True

    def _failed(self, reason: str) -> None:
        """Report the failure and ask again after a pause. A new connection asks by itself."""
        pause = LIST_AGAIN_S[min(self._failures, len(LIST_AGAIN_S) - 1)]
        self._failures += 1
        if self._later is not None:
            self._later.cancel()
        self._later = asyncio.get_running_loop().call_later(pause, self._ask_now)
        self._on_failed(reason)

    def _ask_now(self) -> None:
        for connection in self._ready()[:1]:
            self._tasks.spawn(self.ask(connection))

    def ask_soon(self, connection: Connection) -> None:
        """Ask once for all changes that come in the next moments."""
        self._ask_in(DEBOUNCE_S, connection)

    def follow_change(self, connection: Connection) -> None:
        """Ask soon because the upstream has announced a change; less soon if it does nothing else."""
        if self._soon is not None:
            return
        now = asyncio.get_running_loop().time()
        self._changes = min(self._changes + (now - self._changes_at) / CHANGE_S, CHANGES)
        self._changes_at = now
        self._changes -= 1
        self._ask_in(DEBOUNCE_S if self._changes >= 0 else -self._changes * CHANGE_S, connection)

    def _ask_in(self, pause: float, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        if self._soon is not None:
            if self._soon.when() <= loop.time() + pause:
                return
            self._soon.cancel()
        self._soon = loop.call_later(pause, self._ask_after_changes, connection)

    def _ask_after_changes(self, connection: Connection) -> None:
        self._soon = None
        if connection.ready:
            self._tasks.spawn(self.ask(connection))

    def close(self) -> None:
        """Ask no more."""
        for timer in (self._soon, self._later):
            if timer is not None:
                timer.cancel()
