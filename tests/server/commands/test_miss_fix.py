"""`foretool misses fix`: says the effect, pins, keeps comments, and takes it back."""

from pathlib import Path

import pytest
from command_fakes import fill, write_config
from msgspec.structs import replace
from stored_records import MISS

from foretool.server.commands.group import run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = write_config(tmp_path)
    with fill(path) as store:
        store.calls.record(
            [],
            [
                replace(MISS, tool="sky__moon", cause="rank"),
                replace(MISS, tool="sky__moon", cause="denied", change="remove the rule"),
            ],
        )
    path.write_text(path.read_text().replace('{"mcpServers"', '{ // mine\n"mcpServers"', 1))
    return path


def test_a_fix_says_its_effect_keeps_comments_and_is_taken_back(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    assert run(["misses", "fix", "2", "--dry-run", "--config", str(path)]) == 0
    assert path.read_bytes() == before
    assert run(["misses", "fix", "2", "--yes", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "Of the latest 3 misses, 2 were of tools that the list gains." in out
    assert "// mine" in path.read_text() and "sky__moon" in path.read_text()
    assert run(["misses", "fix", "2", "--yes", "--config", str(path)]) == 0
    assert "is in the list by now" in capsys.readouterr().out
    assert run(["misses", "fix", "--undo", "--config", str(path)]) == 0
    assert path.read_bytes() == before


def test_what_a_pin_cannot_help_is_said(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["misses", "fix", "3", "--yes", "--config", str(path)]) == 1
    assert "a pin does not help: remove the rule" in capsys.readouterr().err
    assert run(["misses", "fix", "99", "--yes", "--config", str(path)]) == 1


def test_nothing_is_written_where_nobody_can_be_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert run(["misses", "fix", "2", "--config", str(path)]) == 2
    assert path.read_bytes() == before
