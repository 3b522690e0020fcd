"""Commands that edit the config show what changes, keep a copy, hide secrets, and can be taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_fakes import write_config
from requirements import requirement

from foretool.server.commands.group import run
from foretool.server.setup import own_servers


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(
        '{ // mine\n  "mcpServers": {\n    "a": {"command": "x", "env": {"T": "pw1"}}, // one\n'
        '    "b": {"command": "y"}\n  }\n}\n'
    )
    path.chmod(0o640)
    return path


@pytest.mark.parametrize(
    ("command", "left", "said"),
    [
        (
            ["disable", "a"],
            {"a": {"command": "x", "disabled": True}, "b": {"command": "y", "disabled": True}},
            "a disabled",
        ),
        (["enable", "a", "b"], {"a": {"command": "x"}, "b": {"command": "y"}}, "b enabled"),
        (["enable", "a"], {"a": {"command": "x"}, "b": {"command": "y", "disabled": True}}, "Nothing has to change"),
        (["remove", "b"], {"a": {"command": "x"}}, "b removed"),
    ],
)
def test_entries_of_servers_are_edited_and_the_others_stay(
    command: list[str], left: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, {"a": {"command": "x"}, "b": {"command": "y", "disabled": True}})
    assert run([*command, "--config", str(path)]) == 0
    assert json.loads(path.read_text())["mcpServers"] == left
    assert said in capsys.readouterr().out


@requirement("manage:undo", "trust:manage:secrets")
def test_each_edit_is_shown_without_secrets_and_taken_back_byte_for_byte(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [config.read_bytes()]
    for arguments in (["disable", "a"], ["enable", "a"], ["disable", "b"], ["remove", "a"]):
        assert run([*arguments, "--config", str(config)]) == 0
        texts.append(config.read_bytes())
    out = capsys.readouterr().out
    assert "pw1" not in out and '-    "a": {"command": "x", "env": {"T": "[T]"}}, // one' in out
    assert "Running proxies take this up by themselves." in out and "foretool remove --undo" in out
    assert texts[2] == texts[0] and config.stat().st_mode & 0o777 == 0o640
    for command, text in zip(("remove", "disable", "enable", "disable"), reversed(texts[:-1]), strict=True):
        assert run([command, "--undo", "--dry-run", "--config", str(config)]) == 0
        assert "would be as it was" in capsys.readouterr().out and config.read_bytes() != text
        assert run([command, "--undo", "--config", str(config)]) == 0
        assert config.read_bytes() == text
    assert run(["remove", "--undo", "--config", str(config)]) == 1
    assert "nothing to take back" in capsys.readouterr().err
    copies = config.parent / "backups" / "edits" / "mcp.json"
    assert all(each.stat().st_mode & 0o077 == 0 for each in copies.rglob("*"))


def test_a_config_that_begins_with_a_byte_order_mark_shows_the_lines_that_change(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_bytes(b"\xef\xbb\xbf" + config.read_bytes())
    assert run(["disable", "b", "--config", str(config)]) == 0
    assert config.read_bytes().startswith(b"\xef\xbb\xbf{ // mine")
    assert '+    "b": {"command": "y", "disabled": true}' in capsys.readouterr().out


def test_a_command_takes_back_none_of_another_and_shows_what_it_takes_back(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second `pin --undo` took back what `add` had done before it."""
    for arguments in (["disable", "b"], ["remove", "a"]):
        assert run([*arguments, "--config", str(config)]) == 0
    before = config.read_bytes()
    capsys.readouterr()
    assert run(["disable", "--undo", "--config", str(config)]) == 2
    said = capsys.readouterr().err
    assert "the latest change was one of foretool remove, which foretool remove --undo" in said
    assert config.read_bytes() == before
    assert run(["remove", "--undo", "--config", str(config)]) == 0
    out = capsys.readouterr().out
    assert "is as it was before the latest change:" in out
    assert '  +    "a": {"command": "x", "env": {"T": "[T]"}}, // one' in out and "disabled" not in out


def test_a_file_that_was_edited_by_hand_is_not_overwritten(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["disable", "a", "--config", str(config)])
    config.write_text('{"mcpServers": {}}')
    assert run(["disable", "--undo", "--config", str(config)]) == 1
    assert config.read_text() == '{"mcpServers": {}}' and "it has changed since" in capsys.readouterr().out


def test_a_trial_writes_nothing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = config.read_bytes()
    assert run(["remove", "a", "--dry-run", "--config", str(config)]) == 0
    assert config.read_bytes() == before and [each.name for each in config.parent.iterdir()] == ["mcp.json"]
    assert "Nothing was written." in capsys.readouterr().out


def test_json_tells_what_changed(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["disable", "b", "--json", "--config", str(config)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["what"] == "b disabled" and told["lines"][1] == '+    "b": {"command": "y", "disabled": true}'
    assert Path(told["backup"]).is_dir()
    assert run(["disable", "b", "--json", "--config", str(config)]) == 0
    assert json.loads(capsys.readouterr().out)["lines"] == []


@pytest.mark.parametrize("name", ["remove", "enable", "disable"])
def test_a_wrong_name_is_one_line_that_names_the_near_one(
    name: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = config.read_bytes()
    assert run([name, "b", "aa", "--config", str(config)]) == 1
    assert "has no server 'aa'; did you mean \"a\"?" in capsys.readouterr().err and config.read_bytes() == before
    assert run([name, "--config", str(config)]) == 2
    assert "name at least one server" in capsys.readouterr().err


def test_a_link_stays_a_link(config: Path, tmp_path: Path) -> None:
    link = tmp_path / "dotfiles.json"
    link.symlink_to(config)
    assert run(["disable", "a", "--config", str(link)]) == 0
    assert link.is_symlink() and '"disabled": true' in config.read_text()


def test_old_copies_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_servers, "COPIES", 3)
    path = write_config(tmp_path)
    for name in ("disable", "enable") * 4:
        run([name, "calc", "--config", str(path)])
    assert len(list((tmp_path / "backups/edits/mcp.json").iterdir())) == 3


def test_a_broken_file_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": ')
    assert run(["disable", "a", "--config", str(path)]) == 2
    assert "mcp.json:1:22: expected a value" in capsys.readouterr().err


@requirement("manage:undo")
def test_a_name_beside_undo_has_to_be_what_the_latest_change_was_of(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["remove", "a"], ["disable", "b"]):
        assert run([*arguments, "--config", str(config)]) == 0
    before = config.read_bytes()
    assert run(["remove", "a", "--undo", "--config", str(config)]) == 2
    said = capsys.readouterr().err
    assert "the latest change was one of b, not of 'a'; --undo without a name takes that back" in said
    assert config.read_bytes() == before
    assert run(["disable", "b", "--undo", "--config", str(config)]) == 0
    assert run(["remove", "a", "--undo", "--config", str(config)]) == 0 and '"a"' in config.read_text()


@pytest.mark.parametrize("command", [["list"], ["doctor"], ["init", "--yes"], ["enable", "b"]], ids=" ".join)
def test_a_damaged_config_comes_back_by_the_command_that_its_error_names(
    command: list[str], config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(config.parent))
    assert run(["disable", "b", "--config", str(config)]) == 0
    good = config.read_bytes()
    config.write_bytes(good[:-9])
    assert run([*command, "--config", str(config)]) != 0
    said = capsys.readouterr().err
    assert "or bring back the version of 20" in said and f"foretool doctor --undo --config {config}" in said
    assert "without what was edited by hand since then: " in said
    assert run(["doctor", "--undo", "--dry-run", "--config", str(config)]) == 0 and config.read_bytes() == good[:-9]
    assert "would be the version of 20" in capsys.readouterr().out
    assert run(["doctor", "--undo", "--config", str(config)]) == 0 and config.read_bytes() == good
    said = capsys.readouterr().out
    assert "The damaged file is kept in " in said and "what was edited by hand after 20" in said
    copies = (config.parent / "backups/edits/mcp.json").rglob("*")
    assert good[:-9] in [each.read_bytes() for each in copies if each.is_file()]


def test_the_damaged_file_comes_back_only_after_a_yes(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second --undo brought it back without a word, also one of another command."""
    assert run(["disable", "b", "--config", str(config)]) == 0
    good = config.read_bytes()
    damaged = good[:-9]
    config.write_bytes(damaged)
    assert run(["doctor", "--undo", "--config", str(config)]) == 0
    capsys.readouterr()
    for given in ([], ["--json"]):
        assert run(["doctor", "--undo", *given, "--config", str(config)]) == 1 and config.read_bytes() == good
        said = capsys.readouterr().err
        assert "taking that back brings back the damaged file; nothing was changed" in said
        assert f"foretool doctor --undo --yes --config {config}" in said
    for other in ("disable", "remove", "pin"):
        assert run([other, "--undo", "--config", str(config)]) == 2 and config.read_bytes() == good
    assert run(["doctor", "--undo", "--dry-run", "--config", str(config)]) == 0 and config.read_bytes() == good
    assert "brings back the damaged file" in capsys.readouterr().err
    assert run(["doctor", "--undo", "--yes", "--config", str(config)]) == 0 and config.read_bytes() == damaged
    assert "The config cannot be used: " in " ".join(capsys.readouterr().err.split())


def test_undo_warns_where_the_config_that_comes_back_cannot_be_used(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, unusable = config.read_bytes(), b'{"mcpServers": {"a": {"comand": "x"}}}'
    config.write_bytes(unusable)
    assert run(["remove", "a", "--config", str(config)]) == 0
    assert run(["add", "c", "--no-start", "--config", str(config), "--", "c"]) == 0
    assert run(["add", "--undo", "--config", str(config)]) == 0
    assert run(["remove", "--undo", "--config", str(config)]) == 0 and config.read_bytes() == unusable != good
    assert "The config cannot be used: " in " ".join(capsys.readouterr().err.split())


def test_a_damaged_config_without_a_copy_is_left_alone(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text("{")
    assert run(["list", "--config", str(config)]) == 2
    assert "bring back" not in capsys.readouterr().err
    assert run(["doctor", "--undo", "--config", str(config)]) == 1
    assert "no earlier version is kept; correct it by hand" in capsys.readouterr().err
