"""Work in the course of time: about once a second, each job gets its turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from foretool.server.clients.registry import ClientRegistry
from foretool.server.recording.data_flow import FlowWatch
from foretool.server.recording.recorder import Recorder
from foretool.server.transports.guard import Guard, Job
from foretool.server.transports.tasks import SLICE_S, wait_for_tick
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.storage.store import Store

_TRIM_S: Final = 10.0
"""Pause between two returns of unused memory to the system; one takes a few milliseconds."""


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
