"""The benchmark of wordings, on tasks whose words no tool has."""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_lowercase

import pytest

from bench.datasets import catalog_tools
from bench.retrieval import wordings
from foretool.retrieval.document import document
from foretool.retrieval.known_tools import KnownTool, KnownTools, sketch_definition, write_line
from foretool.retrieval.words import in_words


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


def test_known_tools_are_asked_for_by_wishes_that_are_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = [{"name": f"tool_{n}", "description": f"Does thing number{n}"} for n in range(20)]
    (tmp_path / "servers.json").write_text(json.dumps({"server": "one", "tools": tools}))
    words = [f"{letter}wish" for letter in ascii_lowercase[:20]]
    lines = []
    for each, word in zip(catalog_tools(tmp_path), words, strict=True):
        read = document(each)
        wishes = (f"{word} a", f"{word} b", f"{word} c", word)
        lines.append(write_line(KnownTool(in_words(each.name), "one", sketch_definition(read), wishes)))
    monkeypatch.setattr(wordings, "known_tools", lambda: KnownTools("".join(sorted(lines)).encode()))
    wordings.main([str(tmp_path), "--known", "--encoder", "none", "--json"])
    none, helped = map(json.loads, capsys.readouterr().out.splitlines())
    assert (none["tools"], none["queries"], none["recall"][0]) == (20, 40, 0.0)
    assert helped["change"][0][0] == 1.0
