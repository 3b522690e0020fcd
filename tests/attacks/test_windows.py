"""What a window of a shared proxy must not get: another environment, another storage, another folder, all time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from requirements import requirement
from served import PATIENCE_S, Served
from squatter import NOBODY, ROOT, end, let_others_through, squat
from windows import Desk

from foretool.server.local.places import ProxyIdentity

pytestmark = pytest.mark.slow


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


def rewrite(desk: Desk, **entry: object) -> None:
    """Add keys to the entry of each server."""
    document = json.loads(desk.config.read_text())
    for server in document["mcpServers"].values():
        server.update(entry)
    desk.config.write_text(json.dumps(document))


@requirement("trust:windows:environment")
@pytest.mark.parametrize("entry", [{"inherit": ["A_TOKEN"]}, {"inherit": ["A_*"]}, {"env": {"X": "${A_TOKEN:-none}"}}])
def test_a_window_whose_servers_would_get_other_variables_has_its_own_proxy(
    desk: Desk, entry: dict[str, object]
) -> None:
    rewrite(desk, **entry)
    windows = [desk.opened(A_TOKEN="one"), desk.opened(A_TOKEN="two"), desk.opened(A_TOKEN="one"), desk.opened()]
    found = [{each["pid"] for each in status["windows"]} for status in desk.status()]
    first, second, third, fourth = (window.process.pid for window in windows)
    assert sorted(found, key=len) in ([{second}, {fourth}, {first, third}], [{fourth}, {second}, {first, third}])
    said = "".join(file.read_text() for file in desk.sockets.glob("*.log"))
    assert '"one"' not in said and '"two"' not in said


@requirement("trust:windows:environment")
def test_variables_that_no_server_gets_do_not_matter(desk: Desk) -> None:
    desk.opened(SOME_TOKEN="one", TERM="xterm")
    desk.opened(SOME_TOKEN="two", TERM="dumb", PATH=f"{os.environ['PATH']}:/nothing")
    (status,) = desk.status()
    assert len(status["windows"]) == 2


@requirement("trust:windows:environment")
def test_a_window_that_would_start_another_program_has_its_own_proxy(desk: Desk, tmp_path: Path) -> None:
    rewrite(desk, command="python-of-test")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        program = tmp_path / name / "python-of-test"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        program.chmod(0o755)
    desk.opened(PATH=f"{tmp_path / 'one'}:{os.environ['PATH']}")
    desk.opened(PATH=f"{tmp_path / 'two'}:{os.environ['PATH']}")
    assert len(desk.status()) == 2


@requirement("trust:windows:environment")
def test_a_window_with_another_storage_file_has_its_own_proxy(desk: Desk, tmp_path: Path) -> None:
    desk.opened()
    desk.opened(FORETOOL_STORAGE=str(tmp_path / "other.sqlite3"))
    assert sorted(len(status["windows"]) for status in desk.status()) == [1, 1]
    assert (tmp_path / "other.sqlite3").exists()


@requirement("trust:windows:folder")
def test_a_window_of_another_folder_does_not_use_servers_that_work_in_the_first_one(desk: Desk, tmp_path: Path) -> None:
    rewrite(desk, cwd="${workspaceFolder}")
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    here = [desk.opened(cwd=tmp_path / "here") for _ in range(2)]
    there = desk.opened(cwd=tmp_path / "there")
    found = [{each["pid"] for each in status["windows"]} for status in desk.status()]
    assert sorted(found, key=len) == [{there.process.pid}, {each.process.pid for each in here}]


@requirement("trust:windows:floods")
def test_a_window_that_floods_and_reads_nothing_does_not_hold_up_the_others(desk: Desk) -> None:
    other = desk.opened()
    flood = desk.open()
    flood.initialize()
    stopped = subprocess.Popen(
        [sys.executable, "-m", "foretool", "serve", "--config", str(desk.config)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=desk.folder,
        env={**os.environ, "FORETOOL_SOCKETS": str(desk.sockets)},
    )  # fmt: skip
    try:
        assert stopped.stdin is not None
        os.set_blocking(stopped.stdin.fileno(), False)
        text = "x" * 20_000
        sent = 0
        for number in range(4_000):
            call = {"name": "s0__echo", "arguments": {"text": text}}
            line = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}).encode() + b"\n"
            try:
                sent += os.write(stopped.stdin.fileno(), line)
            except BlockingIOError:
                if not number % 10:
                    assert other.call("s1__echo", {"n": number}) == f'{{"n": {number}}}'
        assert sent < 40_000_000, "what a window sends and does not read piles up"
        assert other.call("s1__echo", {"last": 1}) == '{"last": 1}'
        for number in range(200):
            flood.post("tools/call", {"name": "s0__echo", "arguments": {"n": number}})
        assert other.call("s1__echo", {"last": 2}) == '{"last": 2}'
    finally:
        stopped.kill()
        stopped.communicate(timeout=PATIENCE_S)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the time of a process cannot be told")
@requirement("trust:windows:floods")
def test_a_window_that_searches_without_pause_leaves_the_others_their_turns(desk: Desk) -> None:
    flood, other = desk.opened(), desk.opened()
    spent = Path(f"/proc/{desk.proxy()}/schedstat")
    for number in range(300):
        flood.post("tools/call", {"name": "discover_tools", "arguments": {"task": f"say {number} back and flood"}})
    taken = []
    for number in range(3):
        before = int(spent.read_text().split()[0])
        assert other.call("s1__echo", {"n": number}) == f'{{"n": {number}}}'
        taken.append(int(spent.read_text().split()[0]) - before)
    assert sorted(taken)[1] < 0.1e9, "nanoseconds of the processor"


@pytest.mark.skipif(not ROOT, reason="only root can act as another user")
@requirement("trust:windows:own-user")
def test_no_window_joins_the_socket_of_another_user(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (tmp_path / "run").mkdir(mode=0o700)
    let_others_through(tmp_path)
    (tmp_path / "run").chmod(0o777)
    identity = ProxyIdentity(os.path.realpath(desk.config), "", os.path.realpath(tmp_path))
    squatter = squat(tmp_path / "run", identity, NOBODY)
    (tmp_path / "run").chmod(0o700)
    try:
        window = desk.opened()
        assert window.call("s0__echo", {"n": 1}) == '{"n": 1}'
        assert desk.status()[0]["windows"][0]["pid"] == window.process.pid
        assert "environment" not in end(squatter), "another user was told what the window's environment is"
    finally:
        squatter.kill()
        desk.close()


def test_windows_of_a_folder_that_others_can_enter_have_their_own_proxies(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o755)
    window: Served = desk.opened()
    try:
        assert window.call("s0__echo", {"n": 1}) == '{"n": 1}'
        assert any("others can enter it" in line for line in window.errors)
    finally:
        desk.close()
