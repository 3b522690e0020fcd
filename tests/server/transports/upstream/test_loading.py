"""Whether a launcher is still loading: what it is called, and whether it works."""

import os
import signal
import subprocess
import sys

import pytest
from served import wait_until

from foretool.server.transports.upstream.loading import _processor_time, is_launcher, measure_processes


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        ("npx", ["-y", "server"], True),
        ("/opt/node/bin/npx", [], True),
        ("npx.cmd", [], True),
        ("sh", ["-c", "exec npx -y server"], True),
        ("env", ["NODE_ENV=production", "uvx", "server"], True),
        ("docker", ["run", "-i", "image"], True),
        ("node", ["/opt/npx/server.js"], False),
        ("python3", ["-m", "server"], False),
    ],
)
def test_what_may_download_a_server_is_known_by_its_name(command: str, args: list[str], expected: bool) -> None:
    assert is_launcher(command, args) is expected


@pytest.mark.slow
def test_a_tree_that_works_is_told_from_one_that_waits() -> None:
    works = "while True: sum(range(1000))"
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {works!r}])"
    with subprocess.Popen([sys.executable, "-c", inner], start_new_session=True) as busy:
        try:
            first = measure_processes(busy.pid)
            assert wait_until(lambda: measure_processes(busy.pid).cpu_s > first.cpu_s + 0.5)
        finally:
            os.killpg(busy.pid, signal.SIGKILL)
    waits = "import sys; print(flush=True); sys.stdin.read()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", waits], stdin=pipe, stdout=pipe) as idle:
        assert idle.stdout and idle.stdout.readline()
        seen = measure_processes(idle.pid)
        assert measure_processes(idle.pid).bytes - seen.bytes < 4096


def test_what_ps_says_of_a_tree_is_added_up() -> None:
    rows = ["  7 1 0:01.50", " 3 7 1:00.25", "9 3 1-02:00:00", "5 1 9:00.00"]
    assert _processor_time(rows, 7) == 1.5 + 60.25 + 86_400 + 7_200
