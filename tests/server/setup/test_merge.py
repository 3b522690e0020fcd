"""The same server is one, whoever has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from homes import write_home

from foretool.server.setup.clients import Machine, client_files
from foretool.server.setup.merge import Choice, Conflict, Merged, merge, same_server
from foretool.server.setup.scan import scan


def merged(home: Path, known: dict[str, Any] | None = None, choice: Choice = "both") -> tuple[Merged, list[Conflict]]:
    asked: list[Conflict] = []

    def choose(conflict: Conflict) -> Choice:
        asked.append(conflict)
        return choice

    files = scan(client_files(Machine("linux", home, {}, home)))
    return merge(files, known or {}, "our file", choose), asked


def test_a_server_of_two_clients_is_one(tmp_path: Path) -> None:
    write_home(tmp_path)
    found, asked = merged(tmp_path)
    assert found.origins["time"] == ["Claude Desktop", "Claude Code"]
    assert [(each.name, each.first_from, each.second_from, each.differs) for each in asked] == [
        ("files", "Claude Desktop", "Cursor", ["args"])
    ]
    assert "files-cursor" in found.entries and len(found.taken) == 19


def test_the_user_decides_between_two(tmp_path: Path) -> None:
    write_home(tmp_path)
    first, _ = merged(tmp_path, choice="first")
    second, _ = merged(tmp_path, choice="second")
    assert first.entries["files"]["args"][-1] == "/home/ann/Documents"
    assert second.entries["files"]["args"][-1] == "${HOME}/src"
    assert "files-cursor" not in {**first.entries, **second.entries}


def test_what_our_file_has_stays(tmp_path: Path) -> None:
    write_home(tmp_path)
    known = {"clock": {"command": "uvx", "args": ["mcp-server-time"], "pin": ["*"]}, "git": {"command": "other"}}
    found, asked = merged(tmp_path, known, "first")
    assert "time" not in found.entries and "git" not in found.entries and found.known["git"] == {"command": "other"}
    assert "time (Claude Desktop) is the same server as clock, so it keeps that name" in found.notes
    assert [each.first_from for each in asked if each.name == "git"] == ["our file"]


def test_another_account_is_another_server(tmp_path: Path) -> None:
    cursor, gemini = tmp_path / ".cursor/mcp.json", tmp_path / ".gemini/settings.json"
    for path, token in ((cursor, "one"), (gemini, "two")):
        path.parent.mkdir()
        path.write_text(f'{{"mcpServers": {{"github": {{"command": "g", "env": {{"TOKEN": "{token}"}}}}}}}}')
    found, (conflict,) = merged(tmp_path)
    assert conflict.differs == ["env"] and set(found.entries) == {"github", "github-gemini"}


def test_the_same_server_is_found_by_what_it_reaches() -> None:
    known = {"a": {"command": "x", "args": []}, "b": {"url": "https://h"}, "c": 7}
    assert same_server({"command": "x", "description": "other words"}, known) == "a"
    assert same_server({"command": "x", "env": {"A": "1"}}, known) == ""
