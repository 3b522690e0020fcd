"""`foretool hint --install`: the hook in and out of Claude Code's settings, everything else untouched."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_fakes import fill, write_config
from requirements import requirement

from foretool.server.commands.group import run
from foretool.server.commands.hint import hook_command, install, launcher, remove

OTHERS: dict[str, Any] = {
    "model": "opus",
    "hooks": {
        "UserPromptSubmit": [{"hooks": [{"type": "command", "command": "echo hi"}]}],
        "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}],
    },
}


@requirement("hint:install")
def test_the_hook_is_put_beside_what_is_there_once_and_taken_out_again(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(OTHERS))
    settings.chmod(0o640)
    typed = hook_command(tmp_path / "mcp.json")
    assert install(settings, typed) and not install(settings, typed)
    groups = json.loads(settings.read_text())["hooks"]["UserPromptSubmit"]
    ours = {"hooks": [{"type": "command", "command": typed, "timeout": 2}]}
    assert groups == [*OTHERS["hooks"]["UserPromptSubmit"], ours]
    assert install(settings, hook_command(tmp_path / "other.json"))
    assert len(json.loads(settings.read_text())["hooks"]["UserPromptSubmit"]) == 2
    assert remove(settings) and not remove(settings)
    assert json.loads(settings.read_text()) == OTHERS
    assert (settings.stat().st_mode & 0o777, list(tmp_path.iterdir())) == (0o640, [settings])


@requirement("hint:install")
def test_the_command_that_is_installed_works_where_it_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, settings = write_config(tmp_path), tmp_path / "new" / "settings.json"
    with fill(config) as store:
        assert run(["hint", "--install", "--settings", str(settings), "--config", str(config)]) == 0
        (group,) = json.loads(settings.read_text())["hooks"]["UserPromptSubmit"]
        typed = group["hooks"][0]["command"]
        assert typed in capsys.readouterr().out
        event = json.dumps({"prompt": "weather forecast for a city"})
        monkeypatch.setenv("FORETOOL_HINT_MS", "20000")  # the machine of a test may be busy
        done = subprocess.run(shlex.split(typed), input=event, capture_output=True, text=True, timeout=30, check=True)
        assert "sky__forecast" in done.stdout
        assert [prompt.text for prompt in store.tasks.prompts()] == ["weather forecast for a city"]
    assert run(["hint", "--remove", "--settings", str(settings)]) == 0
    assert json.loads(settings.read_text()) == {}


@pytest.mark.parametrize("text", ["{not json", "[]", '{"hooks": {"UserPromptSubmit": {}}}', '{"hooks": []}'])
def test_settings_that_cannot_be_read_are_left_alone(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(text)
    assert run(["hint", "--install", "--settings", str(settings), "--config", str(write_config(tmp_path))]) == 1
    assert settings.read_text() == text
    assert capsys.readouterr().err.count("\n") == 1


def test_connect_offers_the_hook_to_the_client_that_has_hooks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path)
    assert run(["connect", "--json", "--config", str(path)]) == 0
    found = {each["client"]: each["hook"] for each in json.loads(capsys.readouterr().out)}
    assert [client for client, hook in found.items() if hook] == ["claude-code"]
    (group,) = found["claude-code"]["hooks"]["UserPromptSubmit"]
    assert group["hooks"][0]["command"] == hook_command(path)
    assert run(["connect", "claude-code", "--config", str(path)]) == 0
    assert "foretool hint --install" in capsys.readouterr().out


def test_the_command_it_prints_starts_this_foretool() -> None:
    done = subprocess.run([*launcher(), "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("foretool, version ")
