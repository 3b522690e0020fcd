"""The measurement of stuffed tools on a small set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.trust import stuffing

THINGS = [f"thing{number}" for number in range(60)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tools = [
        {"server": f"s{number % 6}", "name": f"get_{thing}", "description": f"Gets a {thing} of a page."}
        for number, thing in enumerate(THINGS)
    ]
    tasks = [
        {"id": str(number), "query": f"get the {thing}", "calls": [f"s{number % 6}/get_{thing}"]}
        for number, thing in enumerate(THINGS)
    ]
    (tmp_path / "tools.jsonl").write_text("".join(f"{json.dumps(tool)}\n" for tool in tools))
    (tmp_path / "dev.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
    return tmp_path


def test_no_answer_has_the_stuffed_tool_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stuffing.main([str(folder), "--servers", "3", "--draws", "2", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["method"]: row["at_1"] for row in rows}.keys() >= {"none", "400 words", "enums of 1,200"}
    assert all(row["n"] == 60 and row["at_1"] == 0.0 for row in rows)
    assert rows[0]["at_12"] == 0.0
