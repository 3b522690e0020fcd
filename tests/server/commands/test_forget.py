"""`foretool forget`: counts, asks, deletes for good, and says what remains."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from command_fakes import echo, write_config
from msgspec.structs import replace
from requirements import requirement
from stored_records import CALL, DISCOVERY, SESSION

from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.storage.opening import open_store
from foretool.storage.records import Prompt, ToolId

FALCON = "release project falcon"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = write_config(tmp_path, {"one": echo("--name", "x")})
    now = time.time()
    with open_store(load(path).storage) as store:
        store.sessions.begin(replace(SESSION, started_at=now))
        store.discoveries.add(replace(DISCOVERY, at=now, task=FALCON))
        store.discoveries.add(replace(DISCOVERY, at=now - 90_000, task="feed the cat"))
        store.tasks.add_prompt(Prompt(now - 90_000, f"please {FALCON}"))
        store.calls.record([replace(CALL, at=now, tool=ToolId("one__add"), arguments='{"falcon":"string"}')])
    return path


def forget(config: Path, *options: str) -> int:
    return run(["forget", *options, "--config", str(config)])


def tasks(config: Path) -> list[str]:
    with open_store(load(config).storage) as store:
        return store.tasks.texts()


@requirement("trust:data:forget")
def test_what_was_counted_is_deleted_and_leaves_no_byte(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert forget(config, "--text", "project falcon", "--dry-run") == 0
    counted = capsys.readouterr().out
    assert "searches for tools" in counted and "prompts" in counted
    assert len(tasks(config)) == 3
    assert forget(config, "--text", "project FALCON", "--yes", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"counts": {"discoveries": 1, "prompts": 1}, "is_done": True, "remains": []}
    assert tasks(config) == ["feed the cat"]
    for each in load(config).storage.parent.glob("foretool.sqlite3*"):
        assert b"project falcon" not in each.read_bytes()


@requirement("trust:data:forget")
@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--since", "1h"], ["feed the cat", f"please {FALCON}"]),
        (["--before", "1d"], [FALCON]),
        (["--before", "2001-01-31"], [FALCON, "feed the cat", f"please {FALCON}"]),
        (["--session", SESSION.key[:6]], [f"please {FALCON}"]),
        (["--since", "1h", "--text", "cat"], [FALCON, "feed the cat", f"please {FALCON}"]),
        (["--all"], []),
    ],
)
def test_conditions_narrow_what_is_meant(options: list[str], left: list[str], config: Path) -> None:
    assert forget(config, *options, "--yes") == 0
    assert sorted(tasks(config)) == sorted(left)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "say what to forget"),
        (["--all", "--text", "x"], "--all deletes everything"),
        (["--text", ""], "found an empty text"),
        (["--since", "soon"], "expected a time like 7d"),
        (["--text", "falcon"], "add --yes, or --dry-run"),
        (["--text", "falcon", "--json"], "add --yes, or --dry-run"),
    ],
)
def test_what_is_unclear_is_refused_and_nothing_is_deleted(
    options: list[str], said: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert forget(config, *options) == 2
    assert said in capsys.readouterr().err
    assert len(tasks(config)) == 3


def test_nothing_that_fits_is_no_error(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert forget(config, "--text", "no such words", "--yes") == 0
    assert "Nothing on record fits" in capsys.readouterr().out
    load(config).storage.unlink()
    assert forget(config, "--all", "--yes") == 1
    assert "does not exist" in capsys.readouterr().err


def test_traces_are_removed_alone(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert forget(config, "--compact") == 0
    assert "no trace" in capsys.readouterr().out
    assert len(tasks(config)) == 3
