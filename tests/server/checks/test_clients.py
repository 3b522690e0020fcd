"""How clients start foretool, and which variables of this shell they do not have."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from command_fakes import write_config

from foretool.server.checks.clients import check_clients, find_registered, needed_variables
from foretool.server.config import loader
from foretool.server.config.codes import Code
from foretool.server.diagnosis import Finding
from foretool.server.setup.clients import Machine

SHELL = {"HOME": "/home/ann", "PATH": "/usr/bin:/bin", "GITHUB_TOKEN": "x" * 20, "LANG": "C"}


def machine(home: Path) -> Machine:
    return Machine("linux", home, {}, home)


def register(home: Path, path: str, config: Path, **more: Any) -> None:
    """Write a client's file with an entry that starts foretool with a config."""
    file = home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    program = home / "bin" / "foretool"
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    entry = {"command": str(program), "args": ["serve", "--config", str(config)], **more}
    file.write_text(json.dumps({"mcpServers": {"foretool": entry}}))


DESKTOP, CURSOR, CLAUDE_CODE = ".config/Claude/claude_desktop_config.json", ".cursor/mcp.json", ".claude.json"


def told(home: Path, config: Path, environ: dict[str, str] = SHELL) -> list[Finding]:
    registered = find_registered(config, machine(home))
    return list(check_clients(loader.load(config, environ), registered, environ))


def config_of(home: Path, **entry: Any) -> Path:
    return write_config(home, {"github": {"command": "/bin/true", **entry}})


@pytest.mark.parametrize("entry", [{"env": {"T": "${GITHUB_TOKEN}"}}, {"inherit": ["GITHUB_TOKEN"]}])
def test_a_variable_that_only_this_shell_has_is_told_with_the_client_that_lacks_it(
    entry: dict[str, Any], tmp_path: Path
) -> None:
    config = config_of(tmp_path, **entry)
    register(tmp_path, DESKTOP, config)
    register(tmp_path, CURSOR, config)
    (found,) = told(tmp_path, config)
    assert (found.severity, found.code, found.server) == ("warning", Code.VARIABLE_NOT_IN_CLIENT, "github")
    assert found.what == ("github: GITHUB_TOKEN is set in this shell, but Claude Desktop and Cursor may not have it")
    places = f"the entry foretool in {tmp_path / DESKTOP} and the entry foretool in {tmp_path / CURSOR}"
    assert found.do == f'add "env": {{"GITHUB_TOKEN": "..."}} to {places}'
    assert SHELL["GITHUB_TOKEN"] not in repr(found)


def test_what_the_same_client_lacks_for_several_servers_stands_once(tmp_path: Path) -> None:
    entry = {"command": "/bin/true", "inherit": ["GITHUB_TOKEN"]}
    config = write_config(tmp_path, {"github": entry, "gists": entry, "other": {**entry, "inherit": ["KEY"]}})
    register(tmp_path, DESKTOP, config)
    (found,) = told(tmp_path, config, {**SHELL, "KEY": "z"})
    needed = "github, gists: GITHUB_TOKEN; other: KEY"
    assert found.what == f"{needed} are set in this shell, but Claude Desktop may not have them"
    assert '"GITHUB_TOKEN": "...", "KEY": "..."' in found.do


def test_the_env_of_the_entry_gives_it(tmp_path: Path) -> None:
    config = config_of(tmp_path, env={"T": "${GITHUB_TOKEN}"})
    register(tmp_path, DESKTOP, config, env={"GITHUB_TOKEN": "y"})
    assert told(tmp_path, config) == []


def test_a_client_of_the_terminal_has_the_variables_of_its_shell(tmp_path: Path) -> None:
    config = config_of(tmp_path, env={"T": "${GITHUB_TOKEN}"})
    (tmp_path / ".claude").mkdir()
    register(tmp_path, CLAUDE_CODE, config)
    assert told(tmp_path, config) == []


def test_a_default_and_a_word_of_a_client_need_no_variable(tmp_path: Path) -> None:
    entry = {"env": {"A": "${GITHUB_TOKEN:-none}", "B": "${userHome}/x", "C": "${workspaceFolder}"}}
    config = config_of(tmp_path, **entry, inherit=["AWS_*"])
    assert needed_variables(loader.load(config, SHELL).servers["github"]) == []


def test_an_entry_for_another_config_is_not_looked_at(tmp_path: Path) -> None:
    config = config_of(tmp_path, env={"T": "${GITHUB_TOKEN}"})
    register(tmp_path, DESKTOP, tmp_path / "other.json")
    assert [(each.severity, each.what.partition(",")[0]) for each in told(tmp_path, config)] == [
        ("ok", "no client's file has foretool with this config")
    ]


def test_a_program_of_a_folder_that_only_this_shell_has_is_noted(tmp_path: Path) -> None:
    folder = Path(sys.executable).parent
    config = write_config(tmp_path, {"one": {"command": Path(sys.executable).name}})
    register(tmp_path, CURSOR, config)
    found = told(tmp_path, config, {"HOME": "/home/ann", "PATH": f"{folder}:/usr/bin"})
    if not str(folder).startswith(("/usr", "/bin")) and Path(f"/usr/bin/{Path(sys.executable).name}").exists() is False:
        assert [each.code for each in found] == [Code.PROGRAM_NOT_IN_CLIENT]
    else:
        assert found == []


def test_what_to_do_about_programs_of_this_shell_is_the_same_for_all_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in ("first-tool", "second-tool"):
        (folder / program).write_text("#!/bin/sh")
        (folder / program).chmod(0o755)
    config = write_config(tmp_path, {"one": {"command": "first-tool"}, "two": {"command": "second-tool"}})
    register(tmp_path, CURSOR, config)
    found = told(tmp_path, config, {"HOME": "/home/ann", "PATH": f"{folder}:/usr/bin"})
    assert [each.code for each in found] == [Code.PROGRAM_NOT_IN_CLIENT] * 2
    assert len({each.do for each in found}) == 1, "doctor prints equal advice once"
