"""`foretool pin --remove`: takes back pins of the setting and of servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_fakes import fill, write_config

from foretool.server.commands.group import run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    servers = {"calc": {"command": "calc"}, "sky": {"command": "sky", "pin": ["moon", "fore*"]}}
    path = write_config(tmp_path, servers, pin=["calc__*", "calc__add"])
    fill(path).close()
    return path


@pytest.mark.parametrize("name", ["calc__add", "sky__moon", "sky__fore*", "calc__*"])
def test_a_pin_is_taken_back_by_what_was_pinned(name: str, config: Path) -> None:
    assert run(["pin", "--remove", name, "--config", str(config)]) == 0
    found = json.loads(config.read_text())
    server, _, tool = name.partition("__")
    assert name not in found["foretool"]["pin"] and tool not in found["mcpServers"][server].get("pin", [])
    assert len(found["foretool"]["pin"]) + len(found["mcpServers"]["sky"]["pin"]) == 3


def test_a_tool_that_a_pattern_pins_is_explained(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pin", "--remove", "sky__forecast", "--config", str(config)]) == 1
    assert "is pinned by the pattern 'sky__fore*'; take that back: foretool pin --remove" in capsys.readouterr().err
    assert run(["pin", "--remove", "sky__none", "--config", str(config)]) == 1
    assert "'sky__none' is not pinned" in capsys.readouterr().err
    assert run(["pin", "--remove", "--config", str(config)]) == 2


def test_no_empty_list_stays_behind_the_last_pin(config: Path) -> None:
    assert run(["pin", "--remove", "calc__add", "calc__*", "sky__moon", "sky__fore*", "--config", str(config)]) == 0
    found = json.loads(config.read_text())
    assert "pin" not in found.get("foretool", {}) and "pin" not in found["mcpServers"]["sky"]
