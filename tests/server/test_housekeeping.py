"""What housekeeping survives."""

from __future__ import annotations

import asyncio
import platform
import time

import pytest
from requirements import requirement

from foretool.server.housekeeping import keep_house, keep_houses, trim_heap
from foretool.server.transports.guard import Guard, Job
from foretool.server.transports.tasks import SLICE_S

pytestmark = pytest.mark.anyio


def test_memory_is_given_back_where_the_c_library_can() -> None:
    assert trim_heap() is (platform.libc_ver()[0] == "glibc")


async def test_groups_of_jobs_look_in_the_same_moment_so_an_idle_proxy_wakes_up_once_a_second() -> None:
    loop = asyncio.get_running_loop()
    looked: list[list[float]] = [[], []]
    rests = (0.0, 0.3)  # where one job takes longer, its group takes the next second

    def group(number: int) -> list[Job]:
        return [
            Job("rest", lambda: asyncio.sleep(rests[number])),
            Job("look", lambda: looked[number].append(loop.time() - rests[number])),
        ]

    keeper = asyncio.create_task(keep_houses(Guard(), group(0), group(1)))
    await asyncio.sleep(4.5)
    keeper.cancel()
    first, second = ([round(at, 2) for at in each[1:]] for each in looked)
    assert len(first) >= 3
    assert first == second == [float(round(at)) for at in first]


@requirement("trust:limits:housekeeping")
async def test_a_job_that_never_ends_delays_no_other_group_of_jobs() -> None:
    ticks = 0
    never = asyncio.Event()

    def tick() -> None:
        nonlocal ticks
        ticks += 1

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        keeper = tasks.create_task(keep_houses(Guard(), (Job("tick", tick),), (Job("never", never.wait),)))
        while ticks < 3:
            await asyncio.sleep(1)
        keeper.cancel()


async def test_after_a_job_that_takes_long_everything_else_has_its_turn_before_the_next() -> None:
    said: list[str] = []
    loop = asyncio.get_running_loop()

    def slow() -> None:
        loop.call_soon(said.append, "a message")
        time.sleep(SLICE_S)

    def quick(name: str) -> Job:
        return Job(name, lambda: said.append(name))

    jobs = [quick("first"), quick("second"), Job("slow", slow), quick("third")]
    keeping = asyncio.create_task(keep_house(Guard(), jobs))
    while "third" not in said:
        await asyncio.sleep(0)
    keeping.cancel()
    assert said == ["first", "second", "a message", "third"]
