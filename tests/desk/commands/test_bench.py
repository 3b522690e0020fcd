"""`foretool bench`: what it prints, its JSON, and what it says where nothing can be measured."""

import io
import json
import re
import sys
from pathlib import Path

import pytest
from recorded_tasks import write_recorded

from foretool.server.commands.group import run

LONG_AGO = ["--since", "4000w"]
NEEDS = [
    ("add two numbers", ["calc__add"]), ("mail for you: please pass it on", ["mail__send"]), ("", ["sky__moon"]),
    ("forecast, and a message", ["sky__forecast", "mail__send"]),
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_recorded(tmp_path, NEEDS)


def bench(path: Path, *arguments: str) -> int:
    return run(["bench", *LONG_AGO, *arguments, "--config", str(path)])


def write(path: Path, *rows: str) -> str:
    file = path.with_name("queries.jsonl")
    file.write_text("".join(f"{row}\n" for row in rows))
    return str(file)


def test_it_measures_each_ranking_on_the_tasks_on_record(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(path) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "3 tasks on record, 4 needed tools among 6" in out
    assert "BM25 0.83 (" in out and "words 0.83 (" in out and "served 0.83 (" in out
    assert "served over BM25: +0.000 in five" in out
    assert "left out: 1 task without words" in out and "with so few tasks the intervals say little" in out
    assert "words alone rank; `foretool status` says why" in out


def test_json_has_the_figures(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(path, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["queries"], told["needed"], told["tools"], told["wordless"], told["unknown"]) == (3, 4, 6, 1, 0)
    assert [each["ranking"] for each in told["rankings"]] == ["BM25", "words", "served"]
    for each in told["rankings"]:
        assert each["first"]["low"] <= each["first"]["mean"] <= each["first"]["high"]
        assert each["first"]["mean"] == pytest.approx(5 / 6, abs=1e-3)  # one of two tools can stand first
        assert each["in_5"]["mean"] == 1.0


def test_a_file_of_queries_takes_the_place_of_the_record(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(
        path,
        '{"query": "the weather in a city", "calls": ["sky__forecast"]}',
        '{"query": "no such tool", "calls": ["sky__tides"]}',
        '{"query": "phase of the moon", "calls": ["moon", "sky__tides"], "any": true}',
    )
    assert bench(path, file, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["source"] == file and (told["queries"], told["unknown"]) == (2, 1)
    assert [each["in_5"]["mean"] for each in told["rankings"]] == [1.0, 1.0, 1.0]
    assert bench(path, file) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"2 tasks of {file}" in out and "left out: 1 task without a tool that may be found" in out


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (['{"query": 1}'], "line 1"),
        (["not json"], "line 1"),
        (['{"query": "x", "calls": ["nobody__knows"]}'], "no line has a query and calls tools of this config"),
        ([], "no line has a query and calls tools of this config"),
    ],
)
def test_a_wrong_file_is_said_with_its_line(
    rows: list[str], said: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(path, write(path, *rows)) == 1
    assert said in capsys.readouterr().err


def test_tasks_that_cannot_be_measured_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wordless = write_recorded(tmp_path, [("", ["sky__moon"])] * 2)
    assert bench(wordless) == 1
    assert "the words of 2 tasks are not on record" in capsys.readouterr().err
    assert run(["bench", "--since", "1d", "--config", str(wordless)]) == 1
    assert "no task of this time is on record; give a longer --since" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider_than_the_terminal(width: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "stdout", terminal)
        assert bench(path) == 0
    out = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())
    assert [line for line in out.splitlines() if len(line) > width] == []
    assert "served" in out and "…" not in out
