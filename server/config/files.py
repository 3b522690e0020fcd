"""Reads files that somebody else may have put in place: never a pipe or a device, and never without end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20
LARGEST_CONFIG: Final = 32 * MIB
"""Most bytes of a config file, of a client or of ours: Claude Code keeps megabytes of history in its own."""


def read_regular(path: Path, largest: int = LARGEST_CONFIG) -> bytes:
    """Return what a regular file holds. Raises `OSError` whose `strerror` says what stands there instead, or that it
    has more than `largest` bytes."""
    # Opening a pipe would otherwise wait for whoever writes into it.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if status.st_size > largest:
            raise OSError(errno.EFBIG, f"it is larger than {largest // MIB} MiB", str(path))
        return file.read()
