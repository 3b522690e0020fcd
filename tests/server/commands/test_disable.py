"""`foretool disable`; what all edits share is in test_edits.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_fakes import write_config

from foretool.server.commands.group import run


def test_a_server_is_switched_off_and_keeps_its_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, {"a": {"command": "x"}, "b": {"command": "y"}})
    assert run(["disable", "a", "--config", str(path)]) == 0
    assert json.loads(path.read_text())["mcpServers"]["a"] == {"command": "x", "disabled": True}
    assert "a disabled" in capsys.readouterr().out
