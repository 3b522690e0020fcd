"""The servers of installed clients are found, and a file that cannot be read harms no other."""

from __future__ import annotations

import json
import os
from pathlib import Path

from homes import write_home
from requirements import requirement

from foretool.server.setup.clients import Machine, client_files
from foretool.server.setup.scan import FoundFile, scan


def found(home: Path, folder: Path | None = None) -> list[FoundFile]:
    return scan(client_files(Machine("linux", home, {}, folder or home)))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    write_home(tmp_path)
    (broken,) = [each for each in found(tmp_path) if each.problem]
    assert broken.file.client == "windsurf" and "found the end of the file" in broken.problem


def test_files_in_other_shapes_are_said_and_no_error(tmp_path: Path, monkeypatch: object) -> None:
    for client, data in {
        ".cursor/mcp.json": b"\xff\xfe\x00",
        ".gemini/settings.json": b'{"mcpServers": []}',
        ".codex/config.toml": b"mcp_servers = 5",
        ".copilot/mcp-config.json": b'{"mcpServers": {"a": 5, "b": {"command": "x", "env": 5}}}',
        ".continue/config.yaml": b"- 1\n- 2\n",
    }.items():
        path = tmp_path / client
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    files = {each.file.client: each for each in found(tmp_path)}
    assert "UTF-8" in files["cursor"].problem
    assert [files[each].servers for each in ("gemini", "codex", "continue")] == [(), (), ()]
    assert [(each.name, bool(each.problem)) for each in files["copilot"].servers] == [("a", True), ("b", False)]


def test_a_file_that_is_too_large_is_left_alone(tmp_path: Path) -> None:
    write_home(tmp_path)
    os.truncate(tmp_path / ".cursor" / "mcp.json", 33 << 20)
    assert [each.problem for each in found(tmp_path) if each.file.client == "cursor"] == [
        "cannot be read (it is larger than 32 MiB); move it away, or check its permissions"
    ]


@requirement("setup:dialects")
def test_lists_that_switch_servers_are_followed(tmp_path: Path) -> None:
    gemini, claude, shop = tmp_path / ".gemini", tmp_path / ".claude.json", tmp_path / "shop"
    for folder in (gemini, tmp_path / ".claude", shop):
        folder.mkdir()
    servers = {name: {"command": name} for name in ("kept", "Old", "other")}
    lists = {"mcp": {"excluded": ["old"], "allowed": ["kept", "OLD"]}}
    (gemini / "settings.json").write_text(json.dumps({**lists, "mcpServers": servers}))
    project = {
        "mcpServers": {"mine": {"command": "mine"}},
        "disabledMcpServers": ["mine", "crm"], "disabledMcpjsonServers": ["b"], "enabledMcpjsonServers": ["a", "b"],
    }  # fmt: skip
    users = {"mcpServers": {"crm": {"command": "crm"}}, "projects": {str(shop): project}}
    claude.write_text(json.dumps(users))
    (shop / ".mcp.json").write_text(json.dumps({"mcpServers": {name: {"command": name} for name in "abc"}}))
    told = {
        each.name: (each.entry.get("disabled", False), each.notes)
        for file in found(tmp_path, shop)
        for each in file.servers
    }
    assert told == {
        "kept": (False, ()),
        "Old": (True, ("switched off, by mcp.excluded",)),
        "other": (True, ("switched off, by mcp.allowed",)),
        "crm": (False, (f"off in {shop}, which only a profile can say",)),
        "mine": (True, ("switched off, by disabledMcpServers",)),
        "a": (False, ()),
        "b": (True, ("switched off, by disabledMcpjsonServers",)),
        "c": (True, ("switched off, by enabledMcpjsonServers",)),
    }
