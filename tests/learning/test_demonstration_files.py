"""Demonstrations are read from files, and a wrong line is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from requirements import requirement

from foretool.learning.demonstration_files import read_demonstrations
from foretool.storage.records import Episode, ToolId


@requirement("learn:import")
def test_demonstrations_may_use_any_name_of_a_tool_and_rows_with_unknown_tools_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "demos.jsonl"
    rows = [
        {"id": "7", "query": "do", "calls": ["a", "u/b"], "edges": [[0, 1]], "args": [{"x": 1}, {}]},
        {"query": "other", "calls": ["gone"]},
        {"query": "chat", "calls": ["a"], "needs_tool": False},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    names = {"a": ToolId("u__a"), "u/b": ToolId("u__b")}
    found = read_demonstrations(path, names)
    assert (found.rows, found.unknown) == (3, ("gone",))
    assert found.episodes == (
        Episode(
            (ToolId("u__a"), ToolId("u__b")),
            ("do",),
            ((0, 1),),
            source="import",
            key="demos.jsonl:7",
            arguments=('{"x":1}', "{}"),
        ),
        Episode((), ("chat",), source="import", key="demos.jsonl:3"),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", 'line 2: Input data was truncated; expected an object with "query"'),
        ("[]", "line 2: Expected `object`, got `array`; expected an object with"),
        (
            '{"query": "x", "calls": "a"}',
            'line 2: Expected `array`, got `str` - at `$.calls`; expected an object with "query"',
        ),
        (
            '{"query": "x", "calls": ["a"], "edges": [[0, 1]]}',
            'line 2: "edges" has the place 1, "calls" has 1 tools; expected',
        ),
        (
            '{"query": "x", "calls": ["a"], "args": []}',
            'line 2: "args" has 0 objects, "calls" has 1 tools; expected an object with',
        ),
    ],
)
@requirement("learn:import")
def test_an_error_names_the_file_and_the_line(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "demos.jsonl"
    path.write_text(f'{{"query": "x", "calls": []}}\n{line}\n')
    with pytest.raises(ValueError) as caught:
        read_demonstrations(path, {})
    assert str(caught.value).startswith(f"{path}: {said}")
