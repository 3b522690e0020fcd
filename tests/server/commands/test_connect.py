"""`foretool connect`: lines that work where they are pasted."""

import json
from pathlib import Path

import pytest
from command_fakes import write_config

from foretool.server.commands.group import run


def test_every_client_gets_absolute_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, profiles={"work": {}})
    assert run(["connect", "--json", "--profile", "work", "--config", str(path)]) == 0
    found = {each["client"]: each for each in json.loads(capsys.readouterr().out)}
    assert {"claude-desktop", "claude-code", "cursor", "vscode", "codex", "gemini", "zed", "goose"} <= set(found)
    for name in ("claude-desktop", "claude-code", "cursor", "vscode"):
        (servers,) = found[name]["entry"].values()
        assert servers["foretool"]["args"][-5:] == ["serve", "--config", str(path), "--profile", "work"]
        assert Path(servers["foretool"]["command"]).is_absolute()
    assert "hint --config" in json.dumps(found["claude-code"]["hook"]) and found["windsurf"]["hook"] is None


def test_a_client_that_is_not_known_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["connect", "emacs", "--config", str(write_config(tmp_path))]) == 1
    assert "no client is called 'emacs'; the clients are claude-code, " in capsys.readouterr().err


def test_one_client_is_printed_for_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path, own = write_config(tmp_path), tmp_path / ".claude.json"
    own.write_text('{"mcpServers": {"time": {"command": "t"}, "foretool": {"command": "foretool", "args": ["serve"]}}}')
    assert run(["connect", "claude-code", "--config", str(path)]) == 0
    out, error = capsys.readouterr()
    assert "\nclaude mcp add --scope user foretool -- " in out and "Cursor" not in out
    assert error.startswith("Then remove time from the client's config;")
    own.write_text("{}")
    assert run(["connect", "claude-code", "--config", str(path)]) == 0 and capsys.readouterr().err == ""


def test_a_config_that_is_not_there_yet_is_remarked_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["connect", "cursor", "--config", str(tmp_path / "none.json")]) == 0
    assert "none.json: no such file yet" in capsys.readouterr().err


def test_the_clients_own_file_as_config_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".cursor").mkdir()
    path = write_config(tmp_path / ".cursor")
    assert run(["connect", "cursor", "--config", str(path)]) == 0
    assert "foretool would start itself" in capsys.readouterr().err
