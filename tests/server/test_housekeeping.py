"""What housekeeping survives."""

from __future__ import annotations

import asyncio
import platform
import time
from pathlib import Path

import pytest
from fakes import live_config
from msgspec.structs import replace
from requirements import requirement
from stored_records import CALL

from foretool.server.housekeeping import DAY_S, SETTLED_S, Retention, keep_house, keep_houses, trim_heap
from foretool.server.transports.guard import Guard, Job
from foretool.server.transports.tasks import SLICE_S
from foretool.storage.opening import open_store

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


@requirement("trust:data:retention")
@pytest.mark.parametrize(("days", "left"), [(90, 1), (0, 3), (0.5, 0)])
async def test_records_older_than_the_setting_are_deleted(days: float, left: int, tmp_path: Path) -> None:
    now = [1000 * DAY_S]
    with open_store(tmp_path / "s.sqlite3") as store:
        store.calls.record([replace(CALL, at=now[0] - age * DAY_S) for age in (200, 91, 1)])
        retention = Retention(store, live_config(retention_days=days), set, lambda: now[0])
        retention.tick()
        assert not retention.is_working
        now[0] += SETTLED_S
        retention.tick()
        await retention.finish()
        assert len(store.calls.recent(-1)) == left


async def test_of_two_proxies_one_deletes_in_an_hour(tmp_path: Path) -> None:
    now = [1000 * DAY_S]
    path = tmp_path / "s.sqlite3"
    with open_store(path) as one, open_store(path) as two:
        both = [Retention(store, live_config(), set, lambda: now[0]) for store in (one, two)]
        now[0] += SETTLED_S
        for each in both:
            each.tick()
            await each.finish()
            one.calls.record([replace(CALL, at=DAY_S)])
        assert len(one.calls.recent(-1)) == 2
        now[0] += 3600.0
        both[1].tick()
        await both[1].finish()
        assert one.calls.recent(-1) == []
