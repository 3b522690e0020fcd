"""Child processes: none outlives the proxy, however either of them ends."""

import os
import select
import subprocess
import sys
from typing import Any

import pytest
from http_fakes import Notes, notification, request
from requirements import requirement

from foretool.server.links import stdio
from foretool.server.links.stdio import Watcher, open_stdio

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


@pytest.mark.anyio
@requirement("backpressure:upstream")
async def test_a_child_that_does_not_read_fails_what_is_too_much_and_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stdio, "MOST_WAITING", 500_000)
    notes, watcher = Notes(), Watcher()
    deaf = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    link = await open_stdio(deaf[0], deaf[1:], {}, None, notes, watcher, 1_000_000)
    try:
        for number in range(10):
            link.send(request(number, "tools/call", text="x" * 100_000))
            link.send(notification("notifications/cancelled", requestId=number))
            link._stdin.flush()  # type: ignore[union-attr]
        failed: list[Any] = [notes.told.get_nowait() for _ in range(notes.told.qsize())]
        assert link._stdin is not None
        assert link._stdin.waiting < 700_000
    finally:
        link._signal(stdio.signal.SIGKILL)
        await link.close()
        watcher.close()
    reason = "it does not read its input, where 0 MiB wait for it"
    assert failed == [("failed", number, reason, False) for number in range(10 - len(failed), 10)]
    assert 3 <= len(failed) <= 5
