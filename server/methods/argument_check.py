"""Checks the arguments of a call against the input schema of its tool, in bounded time.

Most schemas have a bound for the work (`schema_work`) and are checked at once, on the event loop. The others come from
a server that we cannot trust with our loop: a child process checks them one after the other, and is ended when a check
takes longer than the setting `validate_s`. That schema is then left unchecked for a while. A check that does not come
about never stands between a client and its tool: the call goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from foretool.server.catalog.workers import COMMAND, most_errors
from foretool.server.config.loader import LiveConfig
from foretool.server.methods.schema_work import estimate_work
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.system.processes import WORKER_FOLDER, worker_environment
from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.records import Tool

if TYPE_CHECKING:
    from jsonschema_rs import Validator

AT_ONCE: Final = 20_000
"""Steps of a validator that may run on the event loop; they take some 40 ms at worst."""
BYTES_PER_STEP: Final = 256
MOST_BYTES: Final = 4 * 1024 * 1024
"""Arguments that are larger are not checked."""
START_S: Final = 5.0
"""Longest wait for the child to start."""
IDLE_S: Final = 60.0
"""The child ends when it has had nothing to check for this long."""
AGAIN_S: Final = 600.0
"""How long a schema stays unchecked whose check took too long."""
WAIT_FACTOR: Final = 2.0
"""How long a check waits for others at most, in checks that took too long."""
OVERRUNS: Final = 3
"""When this number of schemas of one server took too long, none of its other schemas goes to the child."""
PAUSES_S: Final = (1.0, 5.0, 30.0, 60.0)
"""Pauses before a child that could not be started is started again; the last one repeats."""
KEPT: Final = 512
"""How many schemas are kept ready for the next call."""

Then = Callable[[list[str]], None]
"""Takes what is wrong with the arguments; [] if nothing is, or if that could not be found out."""

log = logging.getLogger("foretool.arguments")


class _Plan(Struct):
    """How the arguments of one tool are checked."""

    schema: Raw
    work: int | None
    validator: Validator | None = None
    """Made at the first check on the loop."""
    is_broken: bool = False
    """The schema is not one."""


class _Job(Struct, eq=False):
    tool: Tool
    line: bytes
    then: Then
    since: float
    """When it began to wait for a child that works, in monotonic seconds."""


class Checker:
    """The child process that checks, and how to end it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> Checker:
        """Start the child and wait until it can work. Raises `OSError`."""
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "check", stdin=pipe, stdout=pipe, stderr=nothing, cwd=WORKER_FOLDER, env=worker_environment()
        )
        checker = cls(process)
        try:
            async with asyncio.timeout(START_S):
                await checker._read()
        except BaseException:
            await checker.end()
            raise
        return checker

    async def check(self, line: bytes) -> list[str]:
        """Return what is wrong in one pair of schema and arguments. Raises `OSError` when the child is gone."""
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        await self._process.stdin.drain()
        return [str(error) for error in json.loads(await self._read())]

    async def _read(self) -> bytes:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise OSError("it has ended")
        return line

    async def end(self) -> None:
        """End the child, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


class ArgumentCheck(BackgroundWork):
    """Checks arguments, and remembers how long schemas take."""

    def __init__(self, config: LiveConfig, start: Callable[[], Awaitable[Checker]] = Checker.start) -> None:
        self._config = config
        self._start = start
        self._plans: OrderedDict[str, _Plan] = OrderedDict()
        self._jobs: deque[_Job] = deque()
        self._checker: Checker | None = None
        self._overran: dict[str, tuple[str, float]] = {}
        """By schema hash: the server of a schema that took too long, and when it may be tried again."""
        self._failures = 0
        self._not_before = 0.0
        self._is_restarted = False
        """The child was started again because a check took too long, and nothing has been idle since."""

    def check(self, tool: Tool, arguments: Raw, then: Then) -> None:
        """Call `then` with what is wrong with the arguments: at once, or when the child has answered."""
        plan = self._plan(tool)
        if plan.work is not None and plan.work * _size(arguments) <= AT_ONCE:
            then(self._check_here(plan, arguments))
        elif (reason := self._refusal(tool, plan, arguments)) is not None:
            log.debug("the arguments of %s are not checked: %s", tool.id, reason)
            then([])
        else:
            line = jsonrpc.one_line(jsonrpc.encode([plan.schema, arguments])) + b"\n"
            self._jobs.append(_Job(tool, line, then, time.monotonic()))
            if not self.is_working:
                self.begin(self._work())
            self._news.set()

    async def stop(self) -> None:
        await super().stop()
        for job in self._take_jobs():
            job.then([])

    # -- which way

    def _plan(self, tool: Tool) -> _Plan:
        if (plan := self._plans.get(tool.schema_hash)) is None:
            schema = jsonrpc.fields(tool.definition)["inputSchema"]
            plan = self._plans[tool.schema_hash] = _Plan(schema, _work(schema))
            if len(self._plans) > KEPT:
                self._plans.popitem(last=False)
        self._plans.move_to_end(tool.schema_hash)
        return plan

    def _check_here(self, plan: _Plan, arguments: Raw) -> list[str]:
        import jsonschema_rs  # 5 MB that only callers of `call_tool` need

        value = jsonrpc.plain(arguments)
        if plan.validator is None and not plan.is_broken:
            try:
                plan.validator = jsonschema_rs.validator_for(jsonrpc.plain(plan.schema), offline=True)
            except (ValueError, jsonschema_rs.ValidationError):
                plan.is_broken = True
        try:
            return most_errors(plan.validator.iter_errors(value)) if plan.validator is not None else []
        except ValueError:
            return []  # the arguments are nested too deeply for the validator

    def _refusal(self, tool: Tool, plan: _Plan, arguments: Raw) -> str | None:
        """Return why the child is not asked."""
        now = time.monotonic()
        self._overran = {key: each for key, each in self._overran.items() if each[1] > now}
        if tool.schema_hash in self._overran:
            return "its schema took too long to check before"
        if sum(upstream == tool.upstream for upstream, _ in self._overran.values()) >= OVERRUNS:
            return f"{OVERRUNS} schemas of {tool.upstream!r} took too long to check"
        if len(plan.schema) + len(arguments) > MOST_BYTES:
            return f"they have more than {MOST_BYTES} bytes"
        return None if now >= self._not_before else "the process that checks does not start"

    # -- the child

    @cached_property
    def _news(self) -> asyncio.Event:
        return asyncio.Event()

    async def _work(self) -> None:
        """Check what waits, then end the child when nothing has come for a while."""
        self._is_restarted = False
        try:
            while True:
                self._news.clear()
                while self._jobs:
                    job = self._jobs.popleft()
                    errors = await self._check_apart(job)
                    job.then(errors)
                async with asyncio.timeout(IDLE_S):
                    await self._news.wait()
        except TimeoutError:
            pass
        finally:
            await self._end_checker()

    async def _check_apart(self, job: _Job) -> list[str]:
        try:
            if self._checker is None:
                self._checker = await self._start()
                self._failures = 0
                if not self._is_restarted:  # the first start is nobody's fault
                    for waiting in (job, *self._jobs):
                        waiting.since = time.monotonic()
        except (OSError, TimeoutError) as error:
            self._note_failure(error)
            return []
        most_s = self._config.settings.validate_s
        if time.monotonic() - job.since > WAIT_FACTOR * most_s:
            log.debug("the arguments of %s are not checked: others took too long", job.tool.id)
            return []
        try:
            async with asyncio.timeout(most_s):
                return await self._checker.check(job.line)
        except TimeoutError:
            self._note_overrun(job.tool)
        except (OSError, ValueError) as error:
            log.debug("the arguments of %s could not be checked: %s", job.tool.id, error)
            self._note_overrun(job.tool)  # it has used up the memory that the child may have
        await self._end_checker()
        return []

    def _note_overrun(self, tool: Tool) -> None:
        self._is_restarted = True
        self._overran[tool.schema_hash] = (tool.upstream, time.monotonic() + AGAIN_S)
        log.info("checking arguments against the schema of %s took too long; its calls go on unchecked", tool.id)
        kept = [job for job in self._jobs if self._refusal(job.tool, self._plan(job.tool), jsonrpc.EMPTY) is None]
        given_up = [job for job in self._jobs if job not in kept]
        self._jobs = deque(kept)
        for job in given_up:
            job.then([])

    def _note_failure(self, error: Exception) -> None:
        pause = PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
        self._failures += 1
        self._not_before = time.monotonic() + pause
        log.warning("arguments are not checked for %g s: the checker did not start (%s)", pause, type(error).__name__)
        for job in self._take_jobs():
            job.then([])

    def _take_jobs(self) -> list[_Job]:
        jobs, self._jobs = list(self._jobs), deque()
        return jobs

    async def _end_checker(self) -> None:
        checker, self._checker = self._checker, None
        if checker is not None:
            await checker.end()


def _work(schema: Raw) -> int | None:
    """Return the bound for one value, None where there is none or the schema cannot be read."""
    try:
        read: Any = jsonrpc.plain(schema)
    except ValueError:
        return None
    return estimate_work(read) if isinstance(read, dict) else None


def _size(arguments: Raw) -> int:
    """Return an upper bound for the number of values in some arguments, in which long strings count more."""
    data = bytes(arguments)
    return max(1 + data.count(b",") + data.count(b"[") + data.count(b"{"), len(data) // BYTES_PER_STEP)
