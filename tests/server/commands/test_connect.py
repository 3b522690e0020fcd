"""`foretool connect`: lines that work where they are pasted."""

import json
import shlex
from pathlib import Path

import pytest
from command_fakes import write_config

from foretool.server.commands.connect import NAMES, registration
from foretool.server.commands.group import run


def test_every_client_gets_absolute_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, profiles={"work": {}})
    assert run(["connect", "--json", "--profile", "work", "--config", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["client"] for each in found] == list(NAMES)
    for each in found:
        (servers,) = each["entry"].values()
        assert servers["foretool"]["args"][-5:] == ["serve", "--config", str(path), "--profile", "work"]
        assert Path(servers["foretool"]["command"]).is_absolute()


def test_words_are_quoted_for_the_shell() -> None:
    told = registration("claude-code", ["/opt/my tools/foretool"], Path("/a b/mcp.json"))
    after = shlex.split(told.command)[shlex.split(told.command).index("--") + 1 :]
    assert after == ["/opt/my tools/foretool", "serve", "--config", "/a b/mcp.json"]
    vscode = shlex.split(registration("vscode", ["/opt/it's/foretool"], Path("/it's.json")).command)
    args = ["serve", "--config", "/it's.json"]
    assert json.loads(vscode[2]) == {"name": "foretool", "command": "/opt/it's/foretool", "args": args}


def test_one_client_is_printed_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    assert run(["connect", "claude-code", "--config", str(path)]) == 0
    out, error = capsys.readouterr()
    assert "\nclaude mcp add --scope user foretool -- " in out and "Cursor" not in out
    assert error.startswith("Then remove your other servers from")


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
