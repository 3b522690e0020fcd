"""`foretool audit`: who called and who decided."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from command_fakes import fill, write_config
from msgspec.structs import replace

from foretool.server.commands.group import run
from foretool.storage.records import AuditEntry

ANN = AuditEntry(1e9, "oauth:1", "ann", "cursor", "work", "call", "git__push", "refused", session="s")
BOB = AuditEntry(1e9 + 9, "user:7", "bob", "", "", "decide", "git", "blocked", "tool push 0a1b2c")


def audit(path: Path, *more: str) -> int:
    return run(["audit", "--config", str(path), *more])


def test_entries_are_shown_newest_first_and_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    with fill(path) as store:
        store.audit.add([ANN, BOB])
    assert audit(path, "--json") == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["bob", "ann"]
    for chosen in (["--who", "ann"], ["--who", "oauth:1"], ["--action", "call"], ["--target", "git__push"]):
        assert audit(path, "--json", *chosen) == 0
        assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["ann"]
    assert audit(path, "--limit", "1") == 0
    out = capsys.readouterr().out
    assert "bob (user:7)" in out and "ann" not in out and "These are the newest 1" in out
    assert 'Calls are not kept: set "audit" to true' in out
    assert audit(path, "--since", "1d") == 0
    assert "No entry fits." in capsys.readouterr().out
    assert audit(path, "--limit", "0") == 2


def test_before_the_first_entry_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, audit=True)
    fill(path).close()
    assert audit(path) == 0
    assert capsys.readouterr().out.strip() == "Nothing is on record yet."


def test_texts_of_others_do_not_reach_the_terminal_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, audit=True)
    with fill(path) as store:
        store.audit.add([replace(ANN, name="ann\x1b]0;evil\x07\n\u202eroot", target="\x1b[2J", detail="x")])
    assert audit(path) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out and "\u202e" not in out


def test_all_of_it_is_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    with fill(path) as store:
        store.audit.add([ANN, replace(BOB, name="=1+1")])
    assert run(["export", "audit", "--config", str(path)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["id"], each["target"]) for each in lines] == [(1, "git__push"), (2, "git")]
    assert run(["export", "audit", "--format", "csv", "--config", str(path)]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert rows[1]["name"] == "'=1+1"
