"""`foretool enable`; what all edits share is in test_edits.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_fakes import write_config

from foretool.server.commands.group import run


def test_a_server_that_is_disabled_is_switched_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, {"a": {"command": "x", "disabled": True}, "b": {"command": "y"}})
    assert run(["enable", "a", "b", "--config", str(path)]) == 0
    assert json.loads(path.read_text())["mcpServers"] == {"a": {"command": "x"}, "b": {"command": "y"}}
    assert run(["enable", "a", "--config", str(path)]) == 0
    assert "Nothing has to change" in capsys.readouterr().out
