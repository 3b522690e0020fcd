"""Where clients keep their servers, on each system."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretool.server.setup.clients import Machine, System, client_files


def machine(home: Path, system: System = "linux", **environ: str) -> Machine:
    return Machine(system, home, environ, home / "work")


@pytest.mark.parametrize(
    ("system", "client", "path"),
    [
        ("linux", "claude-desktop", ".config/Claude/claude_desktop_config.json"),
        ("darwin", "claude-desktop", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", "claude-desktop", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("linux", "vscode", ".config/Code/User/mcp.json"),
        ("darwin", "vscode-insiders", "Library/Application Support/Code - Insiders/User/mcp.json"),
        ("win32", "vscode", "AppData/Roaming/Code/User/mcp.json"),
        ("win32", "goose", "AppData/Roaming/Block/goose/config/config.yaml"),
        ("darwin", "goose", ".config/goose/config.yaml"),
        ("win32", "zed", "AppData/Roaming/Zed/settings.json"),
        ("darwin", "zed", ".config/zed/settings.json"),
        ("linux", "codex", ".codex/config.toml"),
        ("linux", "copilot", ".copilot/mcp-config.json"),
    ],
)
def test_a_client_has_its_file(tmp_path: Path, system: System, client: str, path: str) -> None:
    assert tmp_path / path in [each.path for each in client_files(machine(tmp_path, system)) if each.client == client]


def test_the_environment_moves_folders(tmp_path: Path) -> None:
    moved = {"XDG_CONFIG_HOME": "/x", "CODEX_HOME": "/c", "APPDATA": "/r", "CLAUDE_CONFIG_DIR": "/d"}
    paths = {str(each.path) for each in client_files(machine(tmp_path, **moved))}
    assert {"/x/zed/settings.json", "/c/config.toml", "/d/.claude.json"} <= paths
    paths = {str(each.path) for each in client_files(machine(tmp_path, "win32", **moved))}
    assert "/r/Claude/claude_desktop_config.json" in paths


def test_a_relative_config_folder_is_ignored(tmp_path: Path) -> None:
    assert machine(tmp_path, XDG_CONFIG_HOME="here").config == tmp_path / ".config"


def test_profiles_of_vs_code_are_found(tmp_path: Path) -> None:
    profile = tmp_path / ".config/Code/User/profiles/ab12/mcp.json"
    profile.parent.mkdir(parents=True)
    profile.write_text("{}")
    assert profile in [each.path for each in client_files(machine(tmp_path))]


def test_files_of_a_project_are_marked_and_register_nothing(tmp_path: Path) -> None:
    project = [each for each in client_files(machine(tmp_path)) if each.scope == "project"]
    assert {each.path.parent.parent for each in project} <= {tmp_path, tmp_path / "work", tmp_path / "work/.junie"}
    assert project and not any(each.registers for each in project)
    at_home = Machine("linux", tmp_path, {}, tmp_path)
    assert not any(each.scope == "project" for each in client_files(at_home))
