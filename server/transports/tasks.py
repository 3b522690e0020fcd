"""Tasks that end with their owner, work in slices, and the second in which all that looks from time to time does so."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Iterator
from typing import Any, Final

from foretool.storage.steps import Steps, T

TICK_S: Final = 1.0
"""Pause between two looks of housekeeping."""
_EARLY_S: Final = 0.001
"""How early a timer may fire at most."""

SLICE_S: Final = 0.005
"""How long one piece of work keeps the loop before everything else gets its turn."""

log = logging.getLogger(__name__)


class Precedence:
    """Lets work for which a client waits go before other work, which stops between two of its slices meanwhile."""

    def __init__(self) -> None:
        self._urgent = 0
        """How many pieces of work go first."""
        self._is_free = asyncio.Event()
        self._is_free.set()

    @contextlib.contextmanager
    def go_first(self) -> Iterator[None]:
        """Go first inside the block, which must not wait for work that gives way."""
        self._urgent += 1
        self._is_free.clear()
        try:
            yield
        finally:
            self._urgent -= 1
            if not self._urgent:
                self._is_free.set()

    async def give_way(self) -> None:
        """Wait until nothing goes first."""
        while self._urgent:
            await self._is_free.wait()


async def in_slices(steps: Steps[T], precedence: Precedence | None = None) -> T:
    """Run steps on the loop, a few milliseconds at a time, so that everything else gets its turn between; with
    `precedence`, work that goes first there is finished before the next slice. Cancelling ends the work where it
    stands."""
    try:
        while True:
            if precedence is not None:
                await precedence.give_way()
            until = time.perf_counter() + SLICE_S
            while time.perf_counter() < until:
                next(steps)
            await asyncio.sleep(0)
    except StopIteration as end:
        found: T = end.value
        return found
    finally:
        steps.close()


async def wait_for_tick() -> None:
    """Wait for the next full second of the loop's clock. All that looks about once a second waits for the same one, so
    that an idle proxy wakes up once a second in all."""
    rest = TICK_S - asyncio.get_running_loop().time() % TICK_S
    # A timer may fire a moment before its time: the second that is about to begin is the one that was waited for.
    await asyncio.sleep(rest if rest > _EARLY_S else rest + TICK_S)


class BackgroundWork:
    """Base class of a part that runs its slow work in a background task, one at a time."""

    _task: asyncio.Task[None] | None = None
    has_failed = False
    """Whether the last piece of work has failed."""
    ends = 0
    """How many pieces of work have ended."""
    _failure: Exception | None = None

    @property
    def is_working(self) -> bool:
        return self._task is not None and not self._task.done()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start the task. What it raises is kept for `guard.Guard` to say."""
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            error = task.exception()
            self._failure = error if isinstance(error, Exception) else None
            self.has_failed, self.ends = self._failure is not None, self.ends + 1

    def take_failure(self) -> Exception | None:
        """Return what ended the last piece of work, once; None if it ended well."""
        # Not kept longer: its traceback holds whatever the work had in hand.
        failure, self._failure = self._failure, None
        return failure

    async def finish(self, patience_s: float | None = None) -> None:
        """Wait until the work under way is done, for `patience_s` at most."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=patience_s)

    async def stop(self) -> None:
        """Cancel the work under way, and wait until it has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})


class Tasks:
    """The tasks of one owner, which may be opened in one task and closed in another. A task that fails is logged under
    the owner's name and ends no other task."""

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
