"""Tasks that end with their owner."""

from __future__ import annotations

import asyncio

import pytest

from foretool.server.transports.tasks import BackgroundWork, Tasks

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


async def test_work_is_waited_for_with_patience_and_ends_with_its_owner() -> None:
    blocked, ended = asyncio.Event(), []

    async def work() -> None:
        try:
            await blocked.wait()
        finally:
            ended.append("ended")

    owner = BackgroundWork()
    await owner.finish()
    await owner.stop()  # nothing has begun
    owner.begin(work())
    await owner.finish(patience_s=0.0)
    assert owner.is_working and ended == []
    await owner.stop()
    assert not owner.is_working and ended == ["ended"]
    owner.begin(work())
    blocked.set()
    await owner.finish()
    assert not owner.is_working and ended == ["ended"] * 2
