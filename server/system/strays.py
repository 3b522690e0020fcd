"""Finds and ends the processes that a server has started and left behind, also outside its process group.

Each server gets a mark in its environment, which its children inherit. A process that clears its environment is found
while its parents live. One that does both, clearing its environment and leaving its parents, is not found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

MARK: Final = "FORETOOL_UPSTREAM"
"""The variable that holds the mark. A program that shall outlive foretool removes it from its environment."""
_GRACE_S: Final = 1.0
"""Time for a stray to end after SIGTERM."""
_ROUNDS: Final = 100
"""How often strays are looked for again: one may fork while we look."""

_PROC: Final = Path("/proc")
_HAS_PROC: Final = sys.platform == "linux"


class Process(NamedTuple):
    """A process; its start tells it from a later one with the same id."""

    pid: int
    started: str


def find_descendants(root: int) -> list[Process]:
    """Return the processes that this one started, and those that they started; Linux only, else none."""
    parents: dict[int, list[Process]] = {}
    for pid in _pids():
        if (read := _read_stat(pid)) is not None:
            parents.setdefault(read[0], []).append(Process(pid, read[1]))
    found: list[Process] = []
    waiting = [root]
    while waiting:
        children = parents.pop(waiting.pop(), [])
        found += children
        waiting += (child.pid for child in children)
    return found


def find_marked(mark: str) -> Iterator[int]:
    """Yield the processes that have this mark in their environment, apart from this one."""
    wanted = f"{MARK}={mark}".encode()
    own = os.getpid()
    if not _HAS_PROC:
        yield from (pid for pid in _find_with_ps(wanted) if pid != own)
        return
    for pid in _pids():
        held = b""
        # Processes of other users and those that have just ended cannot be read.
        with contextlib.suppress(OSError):
            held = (_PROC / str(pid) / "environ").read_bytes()
        if wanted in held and pid != own:
            yield pid


def end_strays(mark: str, family: Sequence[Process] = ()) -> None:
    """End every process with this mark, and those of `family` that still run; blocks for a little over `_GRACE_S`."""
    for pid in _strays(mark, family):
        _signal(pid, signal.SIGTERM)
    end = time.monotonic() + _GRACE_S
    while (left := list(_strays(mark, family))) and time.monotonic() < end:
        time.sleep(0.02)
    for _ in range(_ROUNDS):
        if not left:
            return
        # One that forks all the time has another id after the look, so each is killed as soon as it is seen.
        left = [pid for pid in _strays(mark, family) if _signal(pid, signal.SIGKILL)]
        time.sleep(0.005)


def _strays(mark: str, family: Sequence[Process]) -> Iterator[int]:
    yield from (each.pid for each in family if (read := _read_stat(each.pid)) is not None and read[1] == each.started)
    yield from find_marked(mark)


def _signal(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return whether the process was there."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def _pids() -> list[int]:
    """Return the ids of processes, highest first: one that forks all the time lives for a moment only, and has most
    often the highest."""
    with contextlib.suppress(OSError):
        return sorted((int(name) for name in (path.name for path in _PROC.iterdir()) if name.isdecimal()), reverse=True)
    return []


def _read_stat(pid: int) -> tuple[int, str] | None:
    """Return the parent and the start of a process; None if it does not run."""
    try:
        # The name in parentheses may contain anything; the state is the first field after it.
        fields = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else (int(fields[1]), fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _find_with_ps(wanted: bytes) -> Iterator[int]:
    """Yield what macOS's `ps` shows of processes of this user."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ("/bin/ps", "-AEww", "-o", "pid=", "-o", "command=")
        for line in subprocess.run(command, capture_output=True, timeout=5, check=True).stdout.splitlines():
            pid, _, rest = line.strip().partition(b" ")
            if wanted in rest and pid.isdigit():
                yield int(pid)
