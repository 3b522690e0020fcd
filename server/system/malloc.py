"""Returns memory that the allocator keeps although nobody uses it.

After some hundred thousand messages of many sizes, the heap of the C library is full of free pieces, and the process
looks megabytes bigger than it is. So we ask the library from time to time to return them to the system.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

TRIM_S: Final = 10.0
"""Pause between two trims; one takes a few milliseconds."""


def trim_heap() -> bool:
    """Return unused memory to the system. Returns False where the C library has no such call; glibc has."""
    trim = _malloc_trim()
    return trim is not None and trim(0) >= 0


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    import ctypes  # takes time, and nothing needs it before the first list

    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return trim
