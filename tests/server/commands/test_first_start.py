"""A new server is started once: how many tools it has, or what is wrong with it and what to do."""

from __future__ import annotations

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


def test_a_config_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"a": {"command": "x"}}, nonsense=1)
    (found,) = first_start.start(path, ["a"], as_json=True)
    assert not found.is_well and "nonsense" in found.error
