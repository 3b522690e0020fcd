"""`foretool replay`: what it prints, its JSON, and its exit status as a gate."""

import json
from pathlib import Path

import pytest
from recorded_tasks import write_recorded

from foretool.server.commands.group import run

LONG_AGO = ["--since", "4000w"]
NEEDS = [
    ("add two numbers", ["calc__add"]), ("send a message by mail", ["mail__send"]), ("the weather", ["sky__forecast"]),
    ("phase of the moon", ["sky__moon"]),
] * 3  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_recorded(tmp_path, NEEDS)


def replay(path: Path, *arguments: str) -> int:
    return run(["replay", *LONG_AGO, *arguments, "--config", str(path)])


def test_it_says_then_against_now(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(path, "--set", "list_tokens=2000") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "12 tasks, 12 calls, 12 sessions, played again" in out
    assert "misses" in out and "discovery turns" in out and "difference (95 % interval)" in out
    assert "then: list_tokens=2000" in out and "with so few this says little" in out


def test_without_a_change_it_says_how_tasks_do_now(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(path) == 0
    out = capsys.readouterr().out
    assert "on record" in out and "To try another setting: foretool replay --set list_tokens=3000" in out


def test_its_exit_status_is_a_gate(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(path, "--set", "servers.mail.disabled=true", "--fail-if", "worse") == 1
    assert "foretool: replay: the change is worse" in capsys.readouterr().err
    assert replay(path, "--set", "list_tokens=2000", "--fail-if", "worse") == 0
    assert replay(path, "--set", "list_tokens=420", "--fail-if", "not-better") == 1


def test_json_has_the_figures_and_the_verdict(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(path, "--set", "list_tokens=2000", "--set", "pin+=calc__add", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["changes"] == ["list_tokens=2000", "pin+=calc__add"]
    assert told["effect"]["then"]["misses"] < told["effect"]["now"]["misses"]
    assert told["effect"]["misses"]["low"] <= told["effect"]["misses"]["mean"] <= told["effect"]["misses"]["high"]
    assert told["verdict"] in ("better", "mixed") and told["failed"] == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["--set", "lst_tokens=1"], 'did you mean "list_tokens"?'),
        (["--set", "list_tokens=many"], "list_tokens"),
        (["--set", "servers.x.disabled=true"], "no such server"),
        (["--set", "list_tokens=abc"], "--set list_tokens: expected a whole number, found a string. See"),
        (["--set", "list_tokens=-5"], "--set list_tokens: expected at least 0, found -5"),
        (["--set", "policy=foo"], "--set policy: expected one of"),
        (["--set", "pin=3"], "--set pin: expected a list, found a number"),
    ],
)
def test_a_wrong_change_is_a_wrong_command_line(
    changes: list[str], said: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(path, *changes) == 2
    err = capsys.readouterr().err
    assert said in err and "mcp.json" not in err and "quotes" not in err


def test_an_empty_log_says_what_to_do(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", "--since", "1d", "--config", str(path)]) == 1
    assert "no task of this time is on record; give a longer --since, or let a client" in capsys.readouterr().err
