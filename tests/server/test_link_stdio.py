"""Child processes: none outlives the proxy, however either of them ends."""

import os
import select
import subprocess
import sys

import pytest

STUBBORN = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
)

PROXY = f"""
import subprocess, sys
from foretool.server.links.stdio import Watcher

child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], stdout=subprocess.PIPE, start_new_session=True)
Watcher().watch(child.pid)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux lets one wait for a process that is no child")
def test_a_child_that_ignores_sigterm_does_not_outlive_a_proxy_that_was_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PROXY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as proxy:
        assert proxy.stdout
        child = os.pidfd_open(int(proxy.stdout.readline()))
        try:
            assert select.select([child], [], [], 0)[0] == []
            proxy.kill()
            assert select.select([child], [], [], 10)[0] == [child]
        finally:
            os.close(child)
