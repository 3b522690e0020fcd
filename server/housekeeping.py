"""Work in the course of time: each job gets its turn about once a second, and old records are deleted once an hour."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from foretool.server.clients.registry import ClientRegistry
from foretool.server.config.loader import LiveConfig
from foretool.server.recording.data_flow import FlowWatch
from foretool.server.recording.recorder import Recorder
from foretool.server.transports.guard import Guard, Job
from foretool.server.transports.tasks import SLICE_S, BackgroundWork, wait_for_tick
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.storage.store import Store

_TRIM_S: Final = 10.0
"""Pause between two returns of unused memory to the system; one takes a few milliseconds."""
SETTLED_S: Final = 120.0
"""A proxy that has just started has other things to do."""
_EVERY_S: Final = 3600.0
"""Pause between two runs; of several proxies that share a store, one runs."""
_PART: Final = 10_000
"""Records that one call deletes at most; it takes about a second."""
DAY_S: Final = 86_400.0

log = logging.getLogger("foretool.storage")


async def keep_houses(guard: Guard, *groups: Sequence[Job]) -> None:
    """Run groups of jobs beside each other, so that a slow job delays its own group alone, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        for jobs in groups:
            tasks.create_task(keep_house(guard, jobs))


async def keep_house(guard: Guard, jobs: Sequence[Job]) -> None:
    """Run the jobs one after the other about once a second, until cancelled."""
    while True:
        for job in jobs:
            began = time.perf_counter()
            await guard.run(job)
            if time.perf_counter() - began >= SLICE_S:
                await asyncio.sleep(0)  # the next job is a step of its own
        await wait_for_tick()


async def save_flows(flows: FlowWatch, recorder: Recorder) -> None:
    """Look for values that flowed between tools, a few at a time, and record what was found."""
    while flows.look():
        await asyncio.sleep(0)
    if seen := flows.fetch():
        recorder.add_flows(seen)


def follow_sign_ins(upstreams: UpstreamRegistry, clients: ClientRegistry) -> None:
    """Reach servers again to which somebody has signed in since they refused us."""
    for upstream in upstreams:
        bearer = upstream.bearer
        if bearer is None or not bearer.needs_sign_in or not bearer.has_news():
            continue
        if upstream.is_up:
            upstream.relist_all()
        elif len(clients):
            upstream.start(next(iter(clients)).era)


async def run_checkpoint(store: Store) -> None:
    """Move the database's log into its file, when there is enough of it."""
    if store.is_checkpoint_due:
        # In a thread: a checkpoint writes megabytes, and no call should wait for that.
        await asyncio.to_thread(store.checkpoint)


class MemoryReturn:
    """Gives unused memory back to the system every `_TRIM_S` seconds.

    After some hundred thousand messages of many sizes, the heap of the C library is full of free pieces, and the
    process looks megabytes bigger than it is.
    """

    def __init__(self) -> None:
        self._at = time.monotonic()

    def tick(self) -> None:
        if time.monotonic() - self._at > _TRIM_S:
            self._at = time.monotonic()
            trim_heap()


def trim_heap() -> bool:
    """Return unused memory to the system. Returns False where the C library has no such call; glibc has."""
    import ctypes  # takes time, and nothing needs it before the first list

    try:
        return int(ctypes.CDLL(None).malloc_trim(0)) >= 0
    except (OSError, AttributeError):
        return False


class Retention(BackgroundWork):
    """Starts to delete old records when it is time; housekeeping calls `tick` about once a second."""

    def __init__(
        self, store: Store, config: LiveConfig, used_vectors: Callable[[], Collection[bytes]],
        clock: Callable[[], float] = lambda: time.time(),
    ) -> None:  # fmt: skip
        """`used_vectors` returns the hashes of the texts whose vectors serve now."""
        self._store = store
        self._config = config
        self._used_vectors = used_vectors
        self._clock = clock
        self._due = clock() + SETTLED_S
        self._has_turn = False
        """A run has failed, and it is still for this proxy to do it."""

    def tick(self) -> None:
        """Start a run if one is due and no other proxy has done it."""
        days, now = self._config.settings.retention_days, self._clock()
        is_due = now >= self._due or self.has_failed
        if not is_due or self.is_working or self._store.trouble:
            return
        self._due = now + _EVERY_S
        self.begin(self._prune(now, now - days * DAY_S if days else 0.0))

    async def _prune(self, now: float, before: float) -> None:
        if not (self._has_turn or self._store.retention.take_turn(now, int(now + _EVERY_S))):
            return
        self._has_turn = True
        # Vectors that are still used count as new once half of their time is over.
        used = tuple(self._used_vectors())
        await asyncio.to_thread(self._store.retention.touch_vectors, used, now, (now + before) / 2)
        deleted = 0
        while part := await asyncio.to_thread(self._store.retention.prune, before, _PART):
            deleted += part
        self._has_turn = False
        if deleted:
            log.info("deleted %d records older than %g days", deleted, self._config.settings.retention_days)
