"""Processes that a server has left behind are found by its mark, or as its descendants."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from foretool.server.system.strays import MARK, end_strays, find_descendants, find_marked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
PARENT = (
    f"import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', {SLEEP!r}], start_new_session=True).wait()"
)


@contextmanager
def running(code: str, mark: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, MARK: mark}) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
            yield process
        finally:
            process.kill()


def test_processes_are_found_by_the_whole_mark_and_ended() -> None:
    with running(SLEEP, "ab.1;") as one, running(SLEEP, "ab.12;") as other:
        assert list(find_marked("ab.1;")) == [one.pid]
        assert sorted(find_marked("ab.")) == sorted([one.pid, other.pid])
        end_strays("ab.1;")
        assert one.wait(10) == -15
        assert list(find_marked("ab.12;")) == [other.pid]


def test_descendants_are_found_in_other_sessions_too() -> None:
    with running(PARENT, "cd.1;") as parent:
        (child,) = find_descendants(parent.pid)
        parent.kill()
        parent.wait()
        end_strays("no such mark", [child._replace(started="another process")])
        assert list(find_marked("cd.1;")) == [child.pid]
        end_strays("no such mark", [child])
        assert list(find_marked("cd.1;")) == []


def test_nothing_is_found_where_nothing_is_left() -> None:
    assert list(find_marked("no such mark")) == []
    assert find_descendants(2**22 + 1) == []
    end_strays("no such mark")
