"""Work of the page that takes seconds: a foretool command in a process of its own, of low priority, one at a time.

So a replay neither holds up other pages nor the calls of proxies on the same machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from msgspec import Struct, structs

_LONGEST_S: Final = 300.0
"""A command that takes longer is ended."""
_KEPT: Final = 20
"""How many answers are kept."""
WAITING: Final = 3
"""How many commands may wait for their turn."""
_LARGEST: Final = 8 * 1024 * 1024
"""Bytes of an answer."""
_START: Final = (
    "import os, sys\n"
    "if hasattr(os, 'nice'): os.nice(10)\n"
    "from foretool.server.cli import main\n"
    "sys.argv[0] = 'foretool'\n"
    "sys.exit(main())\n"
)


class BackgroundCommand(Struct, frozen=True):
    """One command that runs in the background, and its outcome so far. It never changes, so a page shows one state of
    it."""

    what: tuple[str, ...]
    began: float
    answer: bytes | None = None
    """What it printed; None while it runs."""
    problem: str = ""
    """Why there is no answer; "" while it runs or once it has one."""

    @property
    def is_over(self) -> bool:
        return self.answer is not None or bool(self.problem)

    @property
    def seconds(self) -> int:
        """How long it has run."""
        return int(time.monotonic() - self.began)


class Background:
    """Runs commands and keeps their answers."""

    def __init__(self) -> None:
        self._works: OrderedDict[int, BackgroundCommand] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._last = 0

    def begin(self, arguments: Sequence[str]) -> int | None:
        """Start `foretool` with these arguments; return the number of the work, None if too much waits. The same
        command that still runs is not started twice."""
        for number, work in self._works.items():
            if work.what == tuple(arguments) and not work.is_over:
                return number
        if len(self._tasks) > WAITING:
            return None
        self._last += 1
        self._works[self._last] = BackgroundCommand(tuple(arguments), time.monotonic())
        task = asyncio.get_running_loop().create_task(self._run(self._last, arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        while len(self._works) > _KEPT + WAITING:
            self._works.popitem(last=False)
        return self._last

    def get(self, number: int) -> BackgroundCommand | None:
        return self._works.get(number)

    async def _run(self, number: int, arguments: Sequence[str]) -> None:
        async with self._turn:
            self._note(number, began=time.monotonic())
            try:
                async with asyncio.timeout(_LONGEST_S):
                    self._note(number, answer=await _run(arguments))
            except TimeoutError:
                self._note(number, problem=f"it took longer than {_LONGEST_S:.0f} s; try a shorter time or fewer tasks")
            except _Failed as error:
                self._note(number, problem=str(error))
            except OSError as error:
                self._note(number, problem=f"it could not be started: {error.strerror}")

    def _note(self, number: int, **news: object) -> None:
        if number in self._works:  # it may be so old that it was dropped
            self._works[number] = structs.replace(self._works[number], **news)


class _Failed(Exception):
    """The command ended without an answer; the message is its own."""


async def _run(arguments: Sequence[str]) -> bytes:
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _START, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, env={**os.environ, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        out, err = await running.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            running.kill()
        await running.wait()
        raise
    if running.returncode == 0 and len(out) <= _LARGEST:
        return out
    lines = err.decode(errors="replace").strip().splitlines()
    raise _Failed(lines[-1][:500] if lines else f"the command ended with {running.returncode}")
