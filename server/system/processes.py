"""Processes of ours: which recorded proxies still run, and how our own workers are started.

A pid alone does not say whether a proxy runs, because the system reuses it.

`own_person` is who runs this process: the name that decisions and calls without a token are recorded under.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final

from foretool.storage.records import Person


@cache
def own_person() -> Person:
    """Return the operating system's user who runs this process."""
    number = str(os.geteuid())
    return Person(f"user:{number}", _name() or number)


def _name() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container may run under a number without a name
        return ""


_LATE_S: Final = 2.0
"""A proxy records its start a moment after the system does, whose clock ticks in hundredths of a second."""

WORKER_FOLDER: Final = "/"
"""The folder in which workers start. The client's folder may be a cloned repository, which they must not read."""
_WORKER_VARIABLES: Final = (
    "HOME", "PATH", "TMPDIR", "LANG", "LC_*", "XDG_*", "PYTHON*", "LD_LIBRARY_PATH", "DYLD_*",
    "HF_*", "TRANSFORMERS_*", "TOKENIZERS_*", "TORCH_*", "CUDA_*", "OMP_*", "MKL_*", "OPENBLAS_*", "ORT_*",
    "SSL_CERT_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "*_PROXY", "*_proxy",
)  # fmt: skip
"""Patterns of what Python, the encoders' libraries and their downloads read from the environment."""


def worker_command(module: str, *words: str) -> tuple[str, ...]:
    """Return the command that runs a module of ours; `-P` keeps Python from importing from the working folder."""
    return (sys.executable, "-P", "-m", module, *words)


def worker_environment(names: Iterable[str] = (), **more: str) -> dict[str, str]:
    """Return the environment of a worker: what it reads, the variables with these names, and `more`."""
    return {**_pick(os.environ, (*_WORKER_VARIABLES, *names)), **more}


def _pick(environ: Mapping[str, str], patterns: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if any(fnmatchcase(name, each) for each in patterns)}


def machine_name() -> str:
    """Return what tells this machine, or this container, apart from others that share a database."""
    return os.uname().nodename


def is_running(pid: int, started_at: float) -> bool:
    """Return whether the proxy that started at this time (seconds of the system clock) still runs under this pid."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it runs, under another user
    born = _birth_time(pid)
    return born is None or born <= started_at + _LATE_S


def _birth_time(pid: int) -> float | None:
    """Return when the process started, in seconds of the system clock; None where it does not say (Linux does)."""
    try:
        # The name in parentheses may contain anything; field 22 is the 20th after it.
        ticks = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        boot = next(line for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines() if "btime" in line)
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    return int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
