"""Tasks that end with their owner, and work in slices."""

from __future__ import annotations

import asyncio
import time

import pytest

from foretool.server.transports.tasks import SLICE_S, Precedence, Tasks, in_slices
from foretool.storage.steps import Steps, finish

pytestmark = pytest.mark.anyio


async def test_a_task_that_breaks_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []
    blocked = asyncio.Event()

    async def broken() -> None:
        raise RuntimeError("oops")

    async def waiting() -> None:
        try:
            await blocked.wait()
        finally:
            ended.append("ended")

    tasks = Tasks("link to http://127.0.0.1")
    assert tasks.spawn(waiting()) is not None
    first = tasks.spawn(broken())
    assert first is not None
    await asyncio.wait([first])
    assert "link to http://127.0.0.1: oops" in caplog.text
    await asyncio.create_task(tasks.close())
    assert ended == ["ended"]
    assert tasks.spawn(broken()) is None
    await tasks.close()


async def test_tasks_that_must_not_be_cancelled_are_waited_for() -> None:
    ended: list[str] = []

    async def closing() -> None:
        await asyncio.sleep(0.01)
        ended.append("closed")

    tasks = Tasks("upstream 'calc'")
    tasks.spawn(closing())
    await tasks.close(cancel=False)
    assert ended == ["closed"]


def slow_steps(done: list[int], count: int) -> Steps[int]:
    for at in range(count):
        until = time.perf_counter() + 2 * SLICE_S
        while time.perf_counter() < until:
            pass
        done.append(at)
        yield
    return count


async def test_other_work_gets_its_turn_after_each_slice() -> None:
    done: list[int] = []
    turns: list[int] = []
    work = asyncio.ensure_future(in_slices(slow_steps(done, 5)))
    while not work.done():
        turns.append(len(done))
        await asyncio.sleep(0)
    assert work.result() == finish(slow_steps([], 5)) == 5
    assert set(range(1, 5)) <= set(turns)  # after each step, because each takes longer than a slice


async def test_work_in_slices_that_is_cancelled_ends_where_it_stands() -> None:
    done: list[int] = []
    work = asyncio.ensure_future(in_slices(slow_steps(done, 1000)))
    while len(done) < 3:
        await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    stood = len(done)
    await asyncio.sleep(0)
    assert len(done) == stood < 1000


async def test_work_gives_way_between_two_slices_as_long_as_other_work_goes_first() -> None:
    precedence, done = Precedence(), list[str]()

    def steps() -> Steps[str]:
        for at in range(3):
            time.sleep(SLICE_S)
            done.append(f"step {at}")
            yield
        return "end"

    work = asyncio.create_task(in_slices(steps(), precedence))
    while not done:
        await asyncio.sleep(0)
    with pytest.raises(ValueError, match="a list that fails"), precedence.go_first():
        with precedence.go_first():
            await asyncio.sleep(0.02)
        seen = len(done)
        await asyncio.sleep(0.02)
        assert len(done) == seen, "one of two that go first is still there"
        raise ValueError("a list that fails")
    assert await work == "end"
    assert done == ["step 0", "step 1", "step 2"]
