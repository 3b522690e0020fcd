"""`foretool pin`: what is pinned, what it costs, and whether the budget of the list holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_fakes import fill, write_config
from held_fakes import hold_changes

from foretool.server.commands.group import run
from foretool.server.config.loader import load


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = write_config(tmp_path, list_tokens=70)
    fill(path).close()
    return path


def test_a_pin_is_written_and_its_cost_said(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pin", "sky__forecast", "--config", str(config)]) == 0
    assert json.loads(config.read_text())["foretool"]["pin"] == ["sky__forecast"]
    out = capsys.readouterr().out
    assert "1 pinned tool, 40 of the 70 tokens of the list." in out and "more than the budget" not in out


def test_pins_over_the_budget_are_said_before_they_are_written(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = config.read_bytes()
    assert run(["pin", "sky__*", "--dry-run", "--config", str(config)]) == 0
    out = capsys.readouterr().out
    assert "2 pinned tools, 80 of the 70 tokens" in out and "That is more than the budget" in out
    assert config.read_bytes() == before


def test_without_a_name_it_shows_what_is_pinned(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pin", "--config", str(config)]) == 0
    assert "No tool is pinned." in capsys.readouterr().out
    run(["pin", "sky__moon", "--config", str(config)])
    capsys.readouterr()
    assert run(["pin", "--json", "--config", str(config)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "tools": [{"name": "sky__moon", "tokens": 40}],
        "tokens": 40,
        "budget": 70,
        "over": {},
        "unmatched": [],
        "unserved": {},
    }


def test_json_has_the_edit_and_the_cost(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pin", "sky__*", "--json", "--config", str(config)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pins"]["over"] == {"": [80, 70]} and told["what"] == "sky__* pinned"


def test_a_pattern_for_tools_that_are_not_known_yet_is_pinned_with_a_remark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path)
    assert run(["pin", "sky__*", "--config", str(path)]) == 0
    assert "not known yet are those of sky\n" in capsys.readouterr().err
    assert json.loads(path.read_text())["foretool"]["pin"] == ["sky__*"]
    capsys.readouterr()
    assert run(["pin", "--config", str(path)]) == 0
    assert capsys.readouterr().out == (
        "Pinned, and not served: the tools of server 'sky' are not known (offline); foretool doctor says why\n"
    )
    assert run(["pin", "--remove", "sky__*", "--config", str(path)]) == 0
    assert "pin" not in json.loads(path.read_text())["foretool"]


@pytest.mark.parametrize("pattern", ["nix__*", "nix__[ab]*"])
def test_a_pattern_that_no_server_can_fit_is_not_pinned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pattern: str
) -> None:
    path = write_config(tmp_path)
    before = path.read_bytes()
    assert run(["pin", pattern, "--config", str(path)]) == 1
    assert f"no tool is called or matches '{pattern}'" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_tool_that_waits_for_the_user_is_not_called_unknown(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The server of a pinned tool was upgraded: "no tool that is known is called so", and the pin was taken back."""
    hold_changes(load(config))
    for pattern in ("calc__sub", "calc__su*"):
        assert run(["pin", pattern, "--config", str(config)]) == 1
        said = f"pin: {pattern!r} of server 'calc' waits for your approval (denied); foretool review calc shows it"
        assert said in capsys.readouterr().err
    config.write_text(config.read_text().replace('"list_tokens"', '"pin": ["calc__sub", "nix"], "list_tokens"'))
    assert run(["pin", "--config", str(config)]) == 0
    out = capsys.readouterr().out
    assert "Pinned, and not served: 'calc__sub' of server 'calc' waits for your approval" in out
    assert "no tool that is known is called so: nix\n" in out
