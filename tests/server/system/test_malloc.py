"""Unused memory goes back to the system."""

from __future__ import annotations

import platform

from foretool.server.system.malloc import trim_heap


def test_memory_is_given_back_where_the_c_library_can() -> None:
    assert trim_heap() is (platform.libc_ver()[0] == "glibc")
