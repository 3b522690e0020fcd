"""Which of the proxies on record still run: a pid alone does not tell, since the system gives it to others in time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LATE_S: Final = 2.0
"""A proxy notes its start a moment after the system does, whose clock ticks in hundredths."""


def is_running(pid: int, started_at: float) -> bool:
    """Whether the proxy that started then under this pid still runs, and not another process under its number."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # another user's, but there
    born = _born(pid)
    return born is None or born <= started_at + LATE_S


def _born(pid: int) -> float | None:
    """When the system started this process, where it tells (Linux)."""
    try:
        # The name in parentheses may hold anything; field 22 is the 20th after it.
        ticks = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        boot = next(line for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines() if "btime" in line)
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    return int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
