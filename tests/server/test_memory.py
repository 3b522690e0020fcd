"""Unused memory goes back to the system, and large blocks never come from the heap."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from foretool.server.memory import give_back

IS_GLIBC = platform.libc_ver()[0] == "glibc"

PROBE = """
import ctypes
from foretool.server.memory import give_back

class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usm fsm uord ford keep".split()]

library = ctypes.CDLL(None)
library.malloc.restype, library.mallinfo2.restype = ctypes.c_void_p, Mallinfo
library.free.argtypes = [ctypes.c_void_p]

def has_own_pages(size):
    before = library.mallinfo2().hblks
    block = library.malloc(size)
    has = library.mallinfo2().hblks > before
    library.free(block)
    return has

print(has_own_pages(1 << 20), has_own_pages(200_000))  # the first one, once freed, makes that the size to begin with
give_back()
print(has_own_pages(1 << 20), has_own_pages(200_000))
"""


def test_memory_is_given_back_where_the_c_library_can() -> None:
    assert give_back() is IS_GLIBC


@pytest.mark.skipif(
    not IS_GLIBC or tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 33),
    reason="asks glibc 2.33 or later where a block lies",
)
def test_blocks_of_the_size_of_a_read_keep_pages_of_their_own() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True False", "True True"]
