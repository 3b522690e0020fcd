"""A new server is started once: how many tools it has, or what is wrong with it and what to do."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_fakes import echo, write_config

from foretool.server.commands import first_start


def test_each_server_is_started_and_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    servers = {
        "echo": echo(),
        "none": {"command": "no-such-program-at-all"},
        "unset": {"command": "x", "env": {"A": "${FORETOOL_TEST_UNSET}"}},
        "away": {"url": "http://127.0.0.1:9/mcp"},
    }
    path = write_config(tmp_path, servers)
    found = {each.name: each for each in first_start.start(path, list(servers), as_json=False)}
    assert {name: each.is_well for name, each in found.items()} == {
        "echo": True, "none": False, "unset": False, "away": False,
    }  # fmt: skip
    assert found["echo"].tools == 2 and found["echo"].tokens > 0
    assert "FORETOOL_TEST_UNSET is not set" in found["unset"].error
    out = capsys.readouterr().out
    assert "echo works: 2 tools," in out and "-> check its url" in out
    assert "no-such-program-at-all is not on PATH [FT201]" in out and "-> install it, or write its full path" in out


def test_only_a_server_that_declares_tools_is_said_to_lack_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(
        tmp_path, {"words": echo("--tools", "0", "--declares", "prompts"), "empty": echo("--tools", "0")}
    )
    assert all(each.is_well for each in first_start.start(path, ["words", "empty"], as_json=False))
    words, empty = capsys.readouterr().out.split("empty works: 0 tools, ")
    assert words.startswith("words works: 0 tools, ") and "lists no tools" not in words
    assert "It lists no tools: its documentation may say what it needs first" in empty


def test_a_start_that_is_interrupted_says_that_the_server_stays_in_the_file(tmp_path: Path) -> None:
    path, flag = write_config(tmp_path, {}), tmp_path / "started"
    waits = [sys.executable, "-c", f"import time; open({str(flag)!r}, 'w'); time.sleep(60)"]
    command = [sys.executable, "-m", "foretool", "add", "slow", "--config", str(path), "--", *waits]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        end = time.monotonic() + 20
        while not flag.exists() and time.monotonic() < end:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=20)
    assert running.returncode == 130 and "Stopped: no answer yet from slow." in said
    assert f"slow stays in the file. To take out again: foretool remove slow --config {path}" in said


def test_a_config_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"a": {"command": "x"}}, nonsense=1)
    (found,) = first_start.start(path, ["a"], as_json=True)
    assert not found.is_well and "nonsense" in found.error
