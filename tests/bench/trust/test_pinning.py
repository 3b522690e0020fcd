"""The benchmark of pinned definitions at its smallest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.trust import pinning


@pytest.mark.slow
def test_two_stores_are_started_in_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools = [{"name": "a", "description": "A", "inputSchema": {"type": "object"}}]
    (tmp_path / "one.json").write_text(json.dumps({"server": "one", "tools": tools}))
    pinning.main([str(tmp_path), "--repeat", "2"])
    found = json.loads(capsys.readouterr().out)
    assert (found["tools"], found["servers"]) == (1, 1)
    assert found["list_ms"]["pinned"] > 0
