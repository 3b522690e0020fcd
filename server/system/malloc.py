"""Memory that the allocator keeps although nobody uses it.

After some hundred thousand messages of many sizes the C library's heap is full of free pieces, and the process looks
megabytes bigger than it is. Once in a while it is asked to give them back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

EVERY_S: Final = 10.0
"""How often; it takes a few milliseconds."""


def give_back() -> bool:
    """Hand unused memory back to the system; False where the C library has no such call (it is glibc's)."""
    trim = _trim()
    return trim is not None and trim(0) >= 0


@cache
def _trim() -> Callable[[int], int] | None:
    import ctypes  # not needed before the first list

    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return trim
