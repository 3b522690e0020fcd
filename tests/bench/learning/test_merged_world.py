"""The merged world plays the same later tasks with each arm, and counts what its agent reads and asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from bench.learning import merged_world

ARMS = "nothing,defined,names,growing"


def write_set(data: Path, name: str, servers: int, tools: int) -> None:
    """Tools of several servers, and tasks of which each asks for two tools of one server."""
    folder = data / name
    folder.mkdir()
    schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    every = [
        {
            "server": f"s{at}",
            "name": f"{name}_{at}_{tool}",
            "description": "Counts words. " * 30,
            "input_schema": schema,
        }
        for at in range(servers)
        for tool in range(tools)
    ]
    rows = [
        {"query": f"count the words {at}", "calls": [f"{name}_{at % servers}_{at % tools}", f"{name}_{at % servers}_0"]}
        for at in range(200)
    ]
    (folder / "tools.jsonl").write_text("\n".join(map(json.dumps, every)))
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))


@pytest.mark.slow
def test_each_arm_plays_the_same_tasks_after_the_same_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_set(tmp_path, "one", 6, 30)
    write_set(tmp_path, "two", 6, 30)
    (tmp_path / "mcp_catalogs").mkdir()
    options = ["--sets", "one,two", "--encoder", "none", "--log", "30", "--later", "20", "--orders", "1"]
    merged_world.main([str(tmp_path), *options, "--arms", ARMS])
    rows: dict[str, Any] = {
        row["arm"]: row for row in map(json.loads, capsys.readouterr().out.splitlines()) if "arm" in row
    }
    assert list(rows) == ARMS.split(",")
    assert {row["tasks"] for row in rows.values()} == {20}
    assert rows["names"]["discoveries_to_names"] == [0.0, 0.0, 0.0]
    assert rows["defined"]["without_schema"] == 0.0  # what a list does not define is searched for
    assert rows["names"]["discoveries"] < rows["defined"]["discoveries"]
    assert all(row["read"] > row["tokens"] > 0 for row in rows.values())
