"""`foretool remove`; what all edits share is in test_edits.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_fakes import write_config

from foretool.server.commands.group import run


def test_a_server_is_taken_out_and_the_others_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    assert run(["remove", "calc", "--config", str(path)]) == 0
    assert list(json.loads(path.read_text())["mcpServers"]) == ["sky"]
    assert f"{path}: calc removed" in capsys.readouterr().out
