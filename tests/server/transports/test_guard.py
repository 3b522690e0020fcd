"""One guard round all background jobs: said once, tried again, over when it works."""

from __future__ import annotations

import asyncio

import pytest
from requirements import requirement

from foretool.server.config.codes import Code
from foretool.server.transports.guard import MOST_PAUSE_S, Guard, Job
from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.engine import StorageError

pytestmark = pytest.mark.anyio


class Work:
    """Something that fails while `error` is set."""

    def __init__(self) -> None:
        self.error: Exception | None = RuntimeError("no reason")
        self.done: list[float] = []
        """When it was tried, on the loop's clock."""

    def __call__(self) -> None:
        self.done.append(asyncio.get_running_loop().time())
        if self.error is not None:
            raise self.error


async def run_for(guard: Guard, seconds: int, *jobs: Job) -> None:
    for _ in range(seconds):
        for job in jobs:
            await guard.run(job)
        await asyncio.sleep(1)


@requirement("trust:jobs:guarded")
async def test_a_job_that_fails_is_said_once_tried_with_growing_pauses_and_over_when_it_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard, work, other = Guard(), Work(), Work()
    other.error = None
    await run_for(guard, 200, Job("learning", work), Job("other", other))
    assert len(other.done) == 200
    pauses = [after - before for before, after in zip(work.done, work.done[1:], strict=False)]
    assert pauses[:5] == [1, 2, 4, 8, 16] and max(pauses) == MOST_PAUSE_S
    (failing,) = guard.failing()
    assert (failing.job, failing.error, failing.code) == ("learning", "RuntimeError: no reason", Code.JOB_FAILING)
    (said,) = caplog.records
    assert "'learning' failed: RuntimeError: no reason [FT209]" in said.getMessage() and said.exc_info is not None
    work.error = None
    await run_for(guard, 61, Job("learning", work))
    assert guard.failing() == ()
    assert [each.levelname for each in caplog.records] == ["ERROR", "WARNING"]
    work.error = ValueError("another one")
    await run_for(guard, 1, Job("learning", work))
    assert len(caplog.records) == 3, "what fails again after it has worked is said again"


@requirement("trust:jobs:guarded")
async def test_what_a_job_has_started_and_goes_on_behind_it_counts_as_the_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard, behind, work = Guard(), BackgroundWork(), Work()

    async def fail_later() -> None:
        await asyncio.sleep(0.1)
        work()

    job = Job("retention", lambda: behind.begin(fail_later()), behind)
    await run_for(guard, 30, job)
    assert [each.error for each in guard.failing()] == ["RuntimeError: no reason"]
    assert len(caplog.records) == 1 and 3 < len(work.done) < 10
    work.error = None
    await run_for(guard, 40, job)
    assert guard.failing() == ()
    await behind.stop()


async def test_a_storage_is_said_to_fail_by_its_watch_alone_and_not_at_all_where_it_is_locked_for_a_moment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_said = False
    guard, work = Guard(lambda: is_said), Work()
    work.error = StorageError("store: locked", temporary=True)
    await run_for(guard, 2, Job("usage", work))
    assert guard.failing() == () and not caplog.records
    is_said = True
    await run_for(guard, 10, Job("usage", work))
    assert guard.failing() == () and not caplog.records
    is_said = False
    await run_for(guard, 20, Job("usage", work))
    assert [each.error for each in guard.failing()] == ["store: locked"]
    (said,) = caplog.records
    assert said.exc_info is None


async def test_work_that_never_ends_is_begun_again_where_it_fails(caplog: pytest.LogCaptureFixture) -> None:
    guard, work = Guard(), Work()

    async def listen() -> None:
        work()
        await asyncio.Event().wait()

    keeping = asyncio.create_task(guard.keep("replicas", listen))
    await asyncio.sleep(20)
    assert [each.job for each in guard.failing()] == ["replicas"] and len(work.done) == 5
    work.error = None
    await asyncio.sleep(2 * MOST_PAUSE_S)
    assert guard.failing() == () and len(work.done) == 6
    keeping.cancel()


async def test_everything_is_tried_at_once_where_what_was_in_the_way_is_over() -> None:
    guard, work = Guard(), Work()
    await run_for(guard, 30, Job("usage", work))
    tried = len(work.done)
    guard.hurry()
    await run_for(guard, 1, Job("usage", work))
    assert len(work.done) == tried + 1


async def test_what_a_failure_says_is_one_line_and_holds_nothing_of_the_job(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard()

    def fail() -> None:
        raise ValueError("first\nsecond\x1b[31m" + "x" * 1000)

    guard.attempt("words", fail)
    (failing,) = guard.failing()
    assert failing.error.startswith("ValueError: first | second [31m") and len(failing.error) == 500
    assert caplog.records
