"""Tells which of the recorded proxies still run. A pid alone is not enough: the system reuses it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LATE_S: Final = 2.0
"""A proxy records its start a moment after the system does, whose clock ticks in hundredths of a second."""


def is_running(pid: int, started_at: float) -> bool:
    """Tell whether the proxy that started at this time (seconds of the system clock) still runs under this pid."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it runs, under another user
    born = _birth_time(pid)
    return born is None or born <= started_at + LATE_S


def _birth_time(pid: int) -> float | None:
    """Return when the process started, in seconds of the system clock; None where it does not say (Linux does)."""
    try:
        # The name in parentheses may contain anything; field 22 is the 20th after it.
        ticks = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        boot = next(line for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines() if "btime" in line)
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    return int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
