"""Memory that the allocator keeps although nobody uses it.

After some hundred thousand messages of many sizes the C library's heap is full of free pieces, and the process looks
megabytes bigger than it is. Once in a while it is asked to give them back.

glibc raises the size from which a block gets pages of its own (128 KiB) to that of the largest such block it has seen
freed. Python reads up to 256 KiB from a socket into a block that it cuts down to what came; those then come from the
heap, and what lives a little longer than they leaves holes that no other of them fits into: 23 MiB in 100,000 calls, of
which pages in use keep 5. So the size is held where it begins.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

EVERY_S: Final = 10.0
"""How often; it takes a few milliseconds."""

_OWN_PAGES: Final = 128 * 1024
"""Bytes, what glibc begins with."""
_M_MMAP_THRESHOLD: Final = -3


def give_back() -> bool:
    """Hand unused memory back to the system; False where the C library has no such call (it is glibc's)."""
    trim = _trim()
    return trim is not None and trim(0) >= 0


@cache
def _trim() -> Callable[[int], int] | None:
    import ctypes  # not needed before the first list

    try:
        library = ctypes.CDLL(None)
        trim: Callable[[int], int] = library.malloc_trim
        library.mallopt(_M_MMAP_THRESHOLD, _OWN_PAGES)
    except (OSError, AttributeError):
        return None
    return trim
