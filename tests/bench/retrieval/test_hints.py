"""The benchmark of what a prompt hook names, on tasks that words cannot tell apart and a habit can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.retrieval import hints


def test_what_was_learned_is_compared_with_words_on_the_same_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    tools = [
        {"name": f"tool_{letter}", "description": "Does a thing", "input_schema": {}}
        for letter in [*map(str, range(60)), "i", "j"]
    ]
    # The words of a task never name its tool, so only past tasks lead to it.
    tasks = [
        {"query": f"please do the {word} thing, number {n}", "calls": [f"tool_{letter}"]}
        for n in range(12)
        for word, letter in (("blue", "i"), ("green", "j"))
    ]
    for name, rows in (("tools", tools), ("train", tasks), ("dev", tasks[-4:])):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    hints.main([str(tmp_path), "--sets", "made", "--json"])
    row = json.loads(capsys.readouterr().out)
    assert (row["data"], row["tools"], row["tasks"]) == ("made", 62, 4)
    assert row["words"] < row["everything"] == 1.0
    assert 0 < row["gain_low"] <= row["gain_high"]


def test_a_share_counts_needs_and_an_interval_holds_the_mean() -> None:
    task = hints.Task("x", (frozenset({"a", "b"}), frozenset({"c"})))  # type: ignore[arg-type]
    assert hints.share(task, ["b"]) == 0.5  # type: ignore[list-item]
    low, high = hints.interval([0.0, 1.0] * 50)
    assert low < 0.5 < high
