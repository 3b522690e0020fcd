"""`foretool hint --install`: the hook in and out of Claude Code's settings, everything else untouched."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest
from command_fakes import fill, write_config
from requirements import requirement

from foretool.server.commands.group import run
from foretool.server.commands.hint import hook_command, launcher
from foretool.server.setup.client_hooks import HOOKS


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


def test_connect_offers_the_hook_to_the_client_that_has_hooks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path)
    assert run(["connect", "--json", "--config", str(path)]) == 0
    found = {each["client"]: each["hook"] for each in json.loads(capsys.readouterr().out)}
    assert {client for client, hook in found.items() if hook} == {*HOOKS, "vscode-insiders"}
    (group,) = found["claude-code"]["hooks"]["UserPromptSubmit"]
    assert group["hooks"][0]["command"] == hook_command(path)
    assert found["opencode"]["hooks"]["chat.message"][0]["hooks"][0]["command"][1] == "hint"
    assert run(["connect", "claude-code", "--config", str(path)]) == 0
    assert "foretool hint --install" in capsys.readouterr().out


def test_the_command_it_prints_starts_this_foretool() -> None:
    done = subprocess.run([*launcher(), "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("foretool, version ")
