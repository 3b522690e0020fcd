"""Tasks that end with their owner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Tasks:
    """The tasks of one owner, which may be opened in one task and closed in another.

    A task that fails is logged under the owner's name and ends no other task.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._running: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Start a task. Returns None when the owner is closed."""
        if self._is_closed:
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: %s", self._owner, error, exc_info=error)

    async def close(self, *, cancel: bool = True) -> None:
        """Start no more tasks, cancel those that run, and wait until they have ended."""
        self._is_closed = True
        for task in self._running if cancel else ():
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
