"""The benchmark of wordings, on tasks whose words no tool has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.retrieval import wordings


def test_other_tasks_as_wordings_find_tools_that_their_own_words_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = [{"name": f"tool_{n}", "description": "Does a thing", "input_schema": {}} for n in range(20)]
    tasks = [
        {"query": f"please do the {word} job", "calls": [f"tool_{at}"]}
        for _ in range(6)
        for at, word in enumerate(("blue", "green", "amber", "violet"))
    ]
    for name, rows in (("tools", tools), ("train", tasks)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    wordings.main([str(tmp_path), "--encoder", "none", "--json"])
    none, helped, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert none["queries"] == 12 and none["recall"][0] == 0.0
    assert helped["wordings"] == "tasks" and helped["change"][0][0] > 0.5
