"""Tells whether a launcher, such as npx, is still downloading the server that it is to start.

npx that is killed while it unpacks leaves a folder which it takes for complete from then on, so a launcher that loads
is not ended like a server that hangs. A launcher that loads works: it reads, writes and computes. A server that waits
for us, or for something that never comes, does not.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from foretool.server.system.strays import find_descendants

_LAUNCHERS: Final = frozenset(
    {"npx", "npm", "pnpm", "pnpx", "yarn", "bunx", "bun", "uvx", "uv", "pipx", "docker", "podman", "deno"}
)
"""Programs that may download a server before they start it."""
LOADING_S: Final = 300.0
"""A launcher that has not brought up its server after this time is no longer waited for: a large image takes minutes,
and nobody watches a terminal for longer."""
LOOK_S: Final = 2.0
"""Pause between two looks at the work of a launcher."""
_QUIET_S: Final = 15.0
"""A launcher that has not worked for so long does not load any more; npm waits for 10 s before it asks again."""
_LEAST_BYTES: Final = 4096
_LEAST_CPU_S: Final = 0.03
"""Less work than this between two looks is that of timers: a waiting server reads 8 bytes now and then."""


class ProcessWork(NamedTuple):
    """How much a process and its descendants have done so far, to tell whether they still work."""

    cpu_s: float
    bytes: int
    """Read and written; 0 where the system does not say."""


class Loading:
    """Watches the process tree of a launcher from its start until its server speaks or it is ended."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = self.worked_at = time.monotonic()
        self._work = ProcessWork(0.0, 0)

    @property
    def goes_on(self) -> bool:
        """Whether the launcher works, and has not had all of its time."""
        now = time.monotonic()
        return now - self._began < LOADING_S and now - self.worked_at < _QUIET_S

    async def watch(self) -> None:
        """Measure the process tree repeatedly, until its time is over."""
        while time.monotonic() - self._began < LOADING_S:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Measure the process tree, and record whether it has done anything since the last time."""
        self.note(await asyncio.to_thread(measure_processes, self._pid))

    def note(self, work: ProcessWork) -> None:
        """Record how much the process tree has done so far."""
        done, self._work = self._work, work
        if abs(work.cpu_s - done.cpu_s) >= _LEAST_CPU_S or abs(work.bytes - done.bytes) >= _LEAST_BYTES:
            self.worked_at = time.monotonic()


def is_launcher(command: str, args: Sequence[str]) -> bool:
    """Return whether a command may download what it starts, also where a shell or `env` starts it."""
    words = [command, *" ".join(args[:3]).split()]
    return any(_name(word) in _LAUNCHERS for word in words)


def _name(word: str) -> str:
    return Path(word).name.removesuffix(".exe").removesuffix(".cmd")


def measure_processes(root: int) -> ProcessWork:
    """Return what a process and its descendants have done so far."""
    if sys.platform != "linux":
        return ProcessWork(_processor_time(_ps(), root), 0)
    cpu, total = 0, 0
    for pid in (root, *(each.pid for each in find_descendants(root))):
        with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            cpu += sum(map(int, stat[11:15]))  # its own and that of children that have ended
            lines = Path(f"/proc/{pid}/io").read_text("utf-8").splitlines()
            total += sum(int(line.split()[1]) for line in lines[:2])  # rchar and wchar
    return ProcessWork(cpu / os.sysconf("SC_CLK_TCK"), total)


def _ps() -> list[str]:
    with suppress(OSError, subprocess.SubprocessError):
        command = ("/bin/ps", "-Ao", "pid=,ppid=,time=")
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.splitlines()
    return []


def _processor_time(rows: Iterable[str], root: int) -> float:
    """Return the processor time of a tree from the lines of `ps`: pid, parent, and [[days-]hours:]minutes:seconds."""
    total, family = 0.0, {root}
    table = sorted((int(pid), int(parent), spent) for pid, parent, spent in (row.split() for row in rows))
    for _ in table:  # a child may have a smaller id than its parent
        more = {pid for pid, parent, _ in table if parent in family} - family
        if not more:
            break
        family |= more
    for pid, _, spent in table:
        if pid in family:
            days, _, clock = spent.rpartition("-")
            seconds = 0.0
            for part in clock.split(":"):
                seconds = seconds * 60 + float(part)
            total += seconds + 86_400 * int(days or 0)
    return total
