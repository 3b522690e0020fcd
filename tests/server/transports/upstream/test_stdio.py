"""Child processes: none outlives the proxy, however either of them ends."""

import asyncio
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from http_fakes import Notes, notification, request
from requirements import requirement
from served import is_alive, wait_until
from slow_launcher import write_npx

from foretool.server.transports.upstream import stdio
from foretool.server.transports.upstream.base import LinkError
from foretool.server.transports.upstream.stdio import Child, ChildWatcher, open_stdio
from foretool.server.upstreams.causes import telling_line

STUBBORN = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
)

PROXY = f"""
import subprocess, sys
from foretool.server.transports.upstream.stdio import ChildWatcher

child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], stdout=subprocess.PIPE, start_new_session=True)
ChildWatcher().watch(child.pid)
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
    notes, watcher = Notes(), ChildWatcher()
    deaf = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    link = await open_stdio(Child(deaf[0], deaf[1:], {}, None), notes, watcher, 1_000_000)
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


async def _started(watcher: ChildWatcher, words: str, count: int) -> list[stdio.StdioLink]:
    command = [sys.executable, "-c", words]
    opened = (open_stdio(Child(command[0], command[1:], {}, None), Notes(), watcher, 1000) for _ in range(count))
    return list(await asyncio.gather(*opened))


@pytest.mark.anyio
async def test_children_begin_a_few_at_a_time_and_one_that_says_nothing_holds_up_the_others_only_for_a_moment() -> None:
    watcher = ChildWatcher()
    watcher.slots = asyncio.Semaphore(2)
    try:
        links = await _started(watcher, "import sys; sys.stdin.read()", 2)
        assert watcher.slots.locked()
        async with asyncio.timeout(20):
            links += await _started(watcher, "print('{}', flush=True); input()", 4)
            while watcher.slots._value < 2:
                await asyncio.sleep(0.01)
        for link in links:
            await link.close()
        assert watcher.slots._value == 2
    finally:
        watcher.close()


@pytest.mark.anyio
async def test_one_that_cannot_start_leaves_its_place_to_the_next() -> None:
    watcher = ChildWatcher()
    watcher.slots = asyncio.Semaphore(1)
    for _ in range(2):
        with pytest.raises(LinkError):
            await open_stdio(Child("no-such-command-anywhere", [], {}, None), Notes(), watcher, 1000)
    assert watcher.slots._value == 1


@pytest.mark.anyio
async def test_no_child_starts_while_a_client_is_being_told_something_but_that_does_not_last() -> None:
    watcher = ChildWatcher()
    waits = iter([True, True, False])
    watcher.has_unread_output = lambda: next(waits)
    await watcher.wait_for_turn()
    assert list(waits) == []
    watcher.has_unread_output = lambda: True
    async with asyncio.timeout(20):
        await watcher.wait_for_turn()


@pytest.mark.anyio
@requirement("start:download")
async def test_a_launcher_that_loads_is_asked_to_end_and_nobody_waits_until_it_has(tmp_path: Path) -> None:
    notes, watcher = Notes(), ChildWatcher()
    npx = write_npx(tmp_path, 60, "/bin/cat")
    link = await open_stdio(Child(npx, ["-y", "some-server"], {}, None), notes, watcher, 1000)
    assert await asyncio.to_thread(wait_until, (tmp_path / "half").exists)
    assert link.is_loading
    await link.close()
    assert not link.is_loading
    assert await asyncio.to_thread(wait_until, lambda: not (tmp_path / "half").exists())
    assert await asyncio.to_thread(wait_until, lambda: not is_alive(link.pid))
    watcher.close()
    assert not (tmp_path / "whole").exists()


LAUNCHING = """
import asyncio, sys
from http_fakes import Notes
from foretool.server.transports.upstream.stdio import Child, ChildWatcher, open_stdio

async def main():
    link = await open_stdio(Child(sys.argv[1], [], {}, None), Notes(), ChildWatcher(), 1000)
    print(link.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@requirement("start:download")
def test_a_launcher_that_loads_takes_back_what_it_has_after_kill_9_of_the_proxy(tmp_path: Path) -> None:
    npx = write_npx(tmp_path, 60, "/bin/cat")
    support = str(Path(write_npx.__code__.co_filename).parent)
    command = [sys.executable, "-c", LAUNCHING, npx]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": support}) as proxy:
        assert proxy.stdout
        launcher = int(proxy.stdout.readline())
        assert wait_until((tmp_path / "half").exists)
        proxy.kill()
    assert wait_until(lambda: not is_alive(launcher))
    assert not (tmp_path / "half").exists()


@pytest.mark.anyio
async def test_a_launcher_whose_server_has_spoken_is_ended_like_any_other(tmp_path: Path) -> None:
    notes, watcher = Notes(), ChildWatcher()
    speaks = f"print('{json.dumps({'jsonrpc': '2.0', 'method': 'hi'})}', flush=True); {STUBBORN}"
    link = await open_stdio(
        Child(write_npx(tmp_path, 0, sys.executable, "-c", speaks), [], {}, None), notes, watcher, 1000
    )
    async with asyncio.timeout(20):
        await notes.told.get()
    assert not link.is_loading
    await link.close()
    assert not is_alive(link.pid)
    watcher.close()


@pytest.mark.anyio
@pytest.mark.parametrize(("later_s", "said"), [(0.0, "; last stderr line: 'still waiting'"), (30.0, "")])
async def test_what_a_child_wrote_long_before_its_end_is_not_its_reason(
    later_s: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, watcher, loop = Notes(), ChildWatcher(), asyncio.get_running_loop()
    script = "import sys, time; print('still waiting', file=sys.stderr, flush=True); time.sleep(60)"
    link = await open_stdio(Child(sys.executable, ["-S", "-c", script], {}, None), notes, watcher, 1_000_000)
    try:
        async with asyncio.timeout(20):
            while not link.stderr():
                await asyncio.sleep(0.02)
        now = loop.time
        monkeypatch.setattr(loop, "time", lambda: now() + later_s)
        link._signal(stdio.signal.SIGKILL)
        assert await asyncio.wait_for(notes.told.get(), 60) == ("closed", f"was ended by SIGKILL{said}")
    finally:
        await link.close()
        watcher.close()


@pytest.mark.anyio
async def test_what_went_wrong_is_kept_where_a_stack_and_the_fields_of_an_error_follow_it() -> None:
    notes, watcher = Notes(), ChildWatcher()
    error = r"\x1b[31mError: no bindings\x1b[39m\n"
    script = f"import sys; sys.exit('{error}' + '    at frame\\n' * 24 + '  tries: [\\n' + '    one,\\n' * 20)"
    link = await open_stdio(Child(sys.executable, ["-S", "-c", script], {}, None), notes, watcher, 1_000_000)
    try:
        await asyncio.wait_for(notes.told.get(), 60)
        assert telling_line(link.stderr()) == "Error: no bindings"
    finally:
        await link.close()
        watcher.close()
