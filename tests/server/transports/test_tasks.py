"""Tasks that end with their owner."""

from __future__ import annotations

import asyncio

import pytest

from foretool.server.transports.tasks import Tasks

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
