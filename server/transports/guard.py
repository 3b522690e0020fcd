"""The one guard round all background jobs: a job that fails ends neither the proxy nor another job.

A failure is logged once until the job works again, stands among `failing` meanwhile, and is tried again after pauses
that grow. What the rest of the proxy says anyway, such as a storage that cannot be used, is not said for each job too.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec import Struct

from foretool.server.config.codes import Code
from foretool.server.system.logs import log_line
from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.engine import StorageError

_FIRST_PAUSE_S: Final = 1.0
MOST_PAUSE_S: Final = 60.0
"""Pauses before the first and before later tries; each is twice the one before."""
_BRIEF_S: Final = 2.0
"""A storage that is locked for a moment is daily business: it is said of a job that fails for so long."""
_MOST_SAID: Final = 500
"""Characters of an error that `failing` has."""

log = logging.getLogger("foretool.jobs")


class Job(NamedTuple):
    """Something that is done in the background again and again."""

    name: str
    """What users read."""
    run: Callable[[], Awaitable[object] | object]
    work: BackgroundWork | None = None
    """What goes on after `run`: the job fails where that fails."""


class FailingJob(Struct, frozen=True):
    """A background job that fails at present."""

    job: str
    since: float
    error: str
    code: Code = Code.JOB_FAILING


@dataclass
class _Failure:
    since: float
    began: float
    last: float
    due: float
    """On the loop's clock: the first and the last failure, and when it is tried again."""
    pause_s: float
    said: str = ""
    """The error in words: the traceback of the error itself would hold whatever the job had in hand."""
    is_of_storage: bool = False
    is_temporary: bool = False
    in_work: bool = False
    """What goes on after the job's `run` has failed; that `run` succeeds says nothing."""
    is_logged: bool = False

    @property
    def is_brief(self) -> bool:
        return self.is_temporary and self.last - self.began < _BRIEF_S


class Guard:
    """Runs the background jobs and keeps which of them fail."""

    def __init__(self, is_storage_said: Callable[[], bool] = lambda: False) -> None:
        """`is_storage_said`: whether users hear from somebody else that the storage cannot be used."""
        self._is_storage_said = is_storage_said
        self._failures: dict[str, _Failure] = {}
        self._ends: dict[str, int] = {}
        """By job: how many pieces of its `work` had ended at the last look."""

    def failing(self) -> tuple[FailingJob, ...]:
        """Return the jobs that fail now, except those whose cause users hear of from somewhere else."""
        return tuple(
            FailingJob(name, each.since, each.said)
            for name, each in self._failures.items()
            if not each.is_brief and not self._is_known(each)
        )

    async def run(self, job: Job) -> None:
        """Run a job, unless it has failed lately and its pause is not over."""
        if not self._is_due(job.name):
            return
        has_ended = job.work is None or job.work.ends != self._ends.get(job.name, 0)
        if job.work is not None and has_ended:
            self._ends[job.name] = job.work.ends
            if (failure := job.work.take_failure()) is not None:
                self._fail(job.name, failure, in_work=True)
                return
        try:
            done = job.run()
            if inspect.isawaitable(done):
                await done
        except Exception as error:  # noqa: BLE001 -- the boundary of all jobs
            self._fail(job.name, error)
        else:
            if has_ended or not self._failed_in_work(job.name):
                self._recover(job.name)

    def attempt(self, name: str, work: Callable[[], object]) -> None:
        """Call `work` unless it failed and its pause is not over. An exception is recorded, not raised."""
        if self._is_due(name):
            self.insist(name, work)

    def insist(self, name: str, work: Callable[[], object]) -> None:
        """Call `work` even if it has failed lately. An exception is recorded and not raised."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 -- the boundary of all jobs
            self._fail(name, error)
        else:
            self._recover(name)

    async def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run work that should never end, and start it again after a pause whenever it fails."""
        loop = asyncio.get_running_loop()
        while True:
            steady = loop.call_later(MOST_PAUSE_S, self._recover, name)
            try:
                await work()
            except Exception as error:  # noqa: BLE001 -- the boundary of all jobs
                self._fail(name, error)
            else:
                return
            finally:
                steady.cancel()
            await asyncio.sleep(self._failures[name].pause_s)

    def hurry(self) -> None:
        """End all pauses: the cause of the failures may be gone."""
        for each in self._failures.values():
            each.due, each.pause_s = 0.0, _FIRST_PAUSE_S

    def _is_due(self, name: str) -> bool:
        found = self._failures.get(name) if self._failures else None
        return found is None or asyncio.get_running_loop().time() >= found.due

    def _failed_in_work(self, name: str) -> bool:
        return bool(self._failures) and (found := self._failures.get(name)) is not None and found.in_work

    def _fail(self, name: str, error: Exception, *, in_work: bool = False) -> None:
        now = asyncio.get_running_loop().time()
        found = self._failures.get(name)
        if found is None:
            found = self._failures[name] = _Failure(time.time(), now, now, now, _FIRST_PAUSE_S / 2)
        found.said, found.in_work = describe_failure(error), in_work
        found.is_of_storage = isinstance(error, StorageError)
        found.is_temporary = isinstance(error, StorageError) and error.temporary
        found.pause_s = min(2 * found.pause_s, MOST_PAUSE_S)
        found.last, found.due = now, now + found.pause_s
        if found.is_logged or found.is_brief or self._is_known(found):
            return
        found.is_logged = True
        log.error(
            "background job %r failed: %s [%s]; everything else goes on, and it is tried again", name,
            found.said, Code.JOB_FAILING, exc_info=None if found.is_of_storage else error,
        )  # fmt: skip

    def _is_known(self, found: _Failure) -> bool:
        return found.is_of_storage and self._is_storage_said()

    def _recover(self, name: str) -> None:
        if self._failures and (found := self._failures.pop(name, None)) is not None and found.is_logged:
            log.warning("background job %r works again", name)


def describe_failure(error: Exception) -> str:
    """Return an error as one line: our own as they are, others with their type."""
    said = str(error) if isinstance(error, StorageError) else f"{type(error).__name__}: {error}"
    return log_line(said)[:_MOST_SAID]
