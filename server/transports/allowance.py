"""How much of the event loop's time one upstream may take for what nobody asked it, and one client for requests that
come in pieces.

What is counted is time, whatever takes it: bytes that come one by one, interim answers, comments and empty events, and
what a server writes unasked (notifications, questions, junk, replies to nothing). Clients decide how many requests
there are, so each answer brings the time that an honest one takes. Everything else is time that belongs to the other
upstreams: an upstream may take a tenth of the loop for it, and more for a moment. Then it is not read for a while; it
notices because its pipe or its stream is full. Nothing is lost.

Clients are counted in the same way, all connections of one together (`client/connections`): what they may take is paid
for by requests that are whole.

What answers may take is time of the processor: how long a busy machine lets us wait is no fault of the upstream. What
goes beyond it counts with that wait, since a busy machine has less to share.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final

from msgspec import Struct

from foretool.storage.steps import T

SHARE: Final = 0.1
"""The part of the loop's time that one upstream may take for what nobody asked."""
BURST_S: Final = 0.1
"""Seconds of the loop's time that it may take at once."""
LEAST_PAUSE_S: Final = 0.005
MOST_PAUSE_S: Final = 2.0
_MOST_ASKED: Final = 100_000
"""Replies that can be outstanding; more are not counted as free."""
REPLY_S: Final = 0.02
"""Seconds of the loop's time that a request and its answer may take. A busy machine takes 5 ms for one over HTTPS."""
BYTE_S: Final = 0.05 / (1024 * 1024)
"""And each byte of the answer: a busy machine takes 30 ms for a mebibyte over HTTP."""

_ANSWERS_AT_ONCE: Final = 4
_MOST_ANSWERS: Final = 32
"""Answers to one server that are sent at a time, and that may wait before it is not read any more."""


class Took(Struct, frozen=True):
    """The time of one step: of the processor, and by the clock."""

    processor_s: float
    wall_s: float


class StepWatch:
    """A stopwatch for one step, which starts when it is made."""

    __slots__ = ("_processor", "_wall")

    def __init__(self) -> None:
        self._processor, self._wall = time.thread_time(), time.perf_counter()

    def took(self) -> Took:
        return Took(time.thread_time() - self._processor, time.perf_counter() - self._wall)


class Allowance:
    """Limits how much time reading one upstream may take, over all of its links."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = BURST_S
        self._at = clock()
        self._asked = 0
        self._earned = 0.0
        """Seconds that answers have brought since the last count."""

    def note_request(self) -> None:
        """Note that a request was sent. Its reply will earn time for reading."""
        self._asked = min(self._asked + 1, _MOST_ASKED)

    def note_reply(self, size: int) -> None:
        """Note that a reply of `size` bytes has come. It earns time if a request was waiting for it."""
        if self._asked:
            self._asked -= 1
            self._earned += REPLY_S + size * BYTE_S

    def note_part(self, size: int) -> None:
        """Note that `size` bytes of an answer have come, which earn time."""
        self._earned += size * BYTE_S

    def spend(self, took: Took, free_s: float = 0.0) -> float:
        """Count the time that reading the upstream took. Time that answers have earned, and `free_s`, is not counted.
        Returns how much of the free time is left, in seconds."""
        left = free_s + self._earned - took.processor_s
        self._earned = 0.0
        if left >= 0:
            return left
        self._refill()
        over_s = -left * max(took.wall_s / took.processor_s, 1.0)
        self._left = max(self._left - over_s, -MOST_PAUSE_S * SHARE)
        return 0.0

    @property
    def pause_s(self) -> float:
        """How long the upstream is not to be read; 0.0 if it may go on."""
        if self._left < 0:
            self._refill()
        return 0.0 if self._left >= 0 else max(-self._left / SHARE, LEAST_PAUSE_S)

    async def wait(self) -> None:
        """Wait until the upstream may be read."""
        if pause_s := self.pause_s:
            await asyncio.sleep(pause_s)

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(self._left + (now - self._at) * SHARE, BURST_S)
        self._at = now


async def metered(begin: Callable[[], Coroutine[Any, Any, T]], allowance: Allowance, free_s: float = 0.0) -> T:
    """Run work for an upstream, counting each of its steps between two waits against the allowance, whatever library
    runs in it. `free_s`: time that is not counted. The work itself has to wait for the allowance before it reads
    more."""
    return await _Metered(begin(), allowance, free_s)


class _Metered:
    """Drives a coroutine step by step, as a task does."""

    def __init__(self, work: Coroutine[Any, Any, T], allowance: Allowance, free_s: float) -> None:
        self._work = work
        self._allowance = allowance
        self._free_s = free_s

    def __await__(self) -> Generator[Any, Any, T]:
        error: BaseException | None = None
        while True:
            watch = StepWatch()
            try:
                waited_for = self._work.send(None) if error is None else self._work.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                # What is left of the time that answers brought is for the next steps of this work.
                left_s = self._allowance.spend(watch.took(), self._free_s)
                self._free_s = min(left_s, max(REPLY_S, self._free_s))
            error = None
            try:
                yield waited_for
            except BaseException as thrown:  # noqa: BLE001  # whatever a task throws in is for the work to handle
                error = thrown


class Answers:
    """Sends our answers to what a server asks, such as a ping, where each takes an HTTP request: a few at a time. The
    server is not read while many wait."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(_ANSWERS_AT_ONCE)
        self._waiting = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def send(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Send one answer when its turn comes."""
        self._waiting += 1
        if self._waiting > _MOST_ANSWERS:
            self._has_room.clear()
        try:
            async with self._turn:
                await begin()
        finally:
            self._waiting -= 1
            if self._waiting <= _MOST_ANSWERS:
                self._has_room.set()

    async def wait_for_room(self) -> None:
        """Wait until few answers wait."""
        await self._has_room.wait()
