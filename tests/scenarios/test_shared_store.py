"""Real proxies that write one file: in mid-traffic, with one killed, and while another program has the file locked."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

import pytest
from requirements import requirement
from served import Served, wait_until, write_config

from bench.proxy import shared_storage
from bench.servers import echo

pytestmark = pytest.mark.slow

CALLS = 60


@requirement("process:shared-store")
def test_four_proxies_on_one_file_lose_no_record_when_one_is_killed(capsys: pytest.CaptureFixture[str]) -> None:
    """The small version of `python -m bench.proxy.shared_storage`."""
    shared_storage.main(["--calls", "300", "--foretool", f"{sys.executable} -m foretool"])
    found = json.loads(capsys.readouterr().out)
    assert found["exit_statuses"] == [-9, 0, 0, 0]
    assert found["answered"][1:] == [300, 300, 300]
    assert 100 <= found["answered"][0] <= 300
    assert {key: found[key] for key in ("wrong", "missing", "twice", "unknown")} == {
        "wrong": 0,
        "missing": 0,
        "twice": 0,
        "unknown": 0,
    }
    assert found["file"] == "ok"


def kept(path: Path) -> list[int]:
    store = sqlite3.connect(path)
    try:
        return [json.loads(row[0])["n"] for row in store.execute("SELECT arguments FROM calls ORDER BY id")]
    finally:
        store.close()


@requirement("process:shared-store", "record:refusing-store")
def test_while_the_file_is_locked_every_call_is_answered_and_every_record_follows(
    tmp_path: Path,
) -> None:
    upstream = {"command": sys.executable, "args": ["-S", "-E", echo.__file__, "--name", "up"]}
    served = Served(write_config(tmp_path, {"up": upstream}, record="full", policy="full"))
    path = tmp_path / "store.sqlite3"
    try:
        served.initialize()
        served.list_tools()
        served.call("up__up_echo", {"n": -1})
        locker = sqlite3.connect(path, isolation_level=None)
        locker.execute("BEGIN IMMEDIATE")
        for number in range(CALLS):
            served.call("up__up_echo", {"n": number})
        assert kept(path) == [-1], "all were answered while the file was locked"
        locker.execute("ROLLBACK")
        locker.close()
        assert wait_until(lambda: len(kept(path)) == CALLS + 1)
        assert sorted(kept(path)) == list(range(-1, CALLS))
        assert served.leave() == 0
    finally:
        if served.process.poll() is None:
            served.kill()
