"""The config file: settings are checked for what they do, and servers for what they mean."""

from __future__ import annotations

import json
from pathlib import Path

from command_fakes import write_config

from foretool.server.catalog.catalog import Catalog
from foretool.server.checks.settings import check_config, check_pages
from foretool.server.config import loader
from foretool.server.config.codes import Code
from foretool.server.diagnosis import Finding
from foretool.server.protocol.jsonrpc import Raw


def found(path: Path, environ: dict[str, str] | None = None) -> list[Finding]:
    path.chmod(0o600)
    given = {"HOME": str(path.parent), **(environ or {})}
    return [each for each in check_config(loader.load(path, given)) if each.severity != "ok"]


def codes(path: Path) -> list[tuple[str, Code | None]]:
    return [(each.severity, each.code) for each in found(path)]


def test_two_servers_with_the_same_command_are_told(tmp_path: Path) -> None:
    same = {"command": "npx", "args": ["-y", "a"], "env": {"A": "1"}}
    path = write_config(tmp_path, {"one": same, "two": dict(same), "three": {**same, "env": {"A": "2"}}})
    (warning,) = found(path)
    assert (warning.code, warning.server) == (Code.SERVER_TWICE, "two")
    assert warning.what == "two: is the same server as one, so each of its tools is there twice"


def test_a_name_that_is_written_twice_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(
        '{"mcpServers": {\n  "time": {"command": "a"},\n  "git": {"command": "b", "env": {}, "env": {"A": "1"}},\n'
        '  "time": {"command": "c"}\n}, "foretool": {"storage": "s.sqlite3"}}'
    )
    told = [(each.code, each.what, each.server) for each in found(path)]
    assert told == [
        (
            Code.NAME_TWICE,
            f"{path}:3:38: mcpServers.git.env: stands in the file twice; only the last one counts",
            "git",
        ),
        (Code.NAME_TWICE, f"{path}:4:3: mcpServers.time: stands in the file twice; only the last one counts", "time"),
    ]


def test_an_address_open_to_other_machines_without_a_token_is_told(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"one": {"command": "a"}}, bind="0.0.0.0:8399")
    told = [each.what for each in found(path) if each.code is Code.SERVED_OPENLY]
    assert any("no token is set" in what for what in told) and len(told) == 2
    path = write_config(tmp_path, {"one": {"command": "a"}})
    assert codes(path) == []


def test_without_any_server_no_pattern_of_servers_is_blamed(tmp_path: Path) -> None:
    found = [each.code for each in check_config(loader.load(write_config(tmp_path, {}))) if each.severity != "ok"]
    assert found == [Code.NO_SERVERS]


def test_keys_of_other_programs_are_a_note_and_a_misspelt_one_is_a_warning(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"one": {"command": "a", "autoStart": True}, "two": {"command": "b", "inclued": []}})
    assert codes(path) == [("note", Code.KEY_NOT_READ), ("warning", Code.KEY_NOT_READ)]


def test_servers_of_single_projects_of_claude_code_are_named(tmp_path: Path) -> None:
    path = tmp_path / ".claude.json"
    projects = {"/home/a/shop": {"mcpServers": {"shop": {"command": "x"}}}, "/home/a/blog": {"allowedTools": []}}
    path.write_text(json.dumps({"mcpServers": {"one": {"command": "a"}}, "projects": projects, "numStartups": 3}))
    told = {each.code: each for each in found(path)}
    assert told[Code.PROJECTS_NOT_READ].what.endswith(
        "projects: servers that Claude Code has for one folder each are not read: shop; foretool init takes them"
    )
    assert told[Code.KEY_NOT_READ].severity == "note"


ECHO = Raw(b'{"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}')


def test_servers_whose_pages_can_call_nothing_beside_each_other_are_told_for_each_profile(tmp_path: Path) -> None:
    entries = {name: {"command": "a"} for name in ("maps", "plain", "charts")}
    profiles = {"small": {"servers": ["maps", "plain"]}, "large": {"servers": ["*"]}}
    config = loader.load(write_config(tmp_path, entries, profiles=profiles))
    catalog = Catalog(list(config.servers.values()), {})
    show = b'{"name": "show", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "ui://x/page"}}}'
    catalog.replace("plain", [ECHO])
    catalog.replace("maps", [Raw(show)])
    assert list(check_pages(catalog, config)) == []
    catalog.replace("charts", [Raw(show)])
    said = "maps, charts have pages (MCP Apps), which can call no tools beside each other"
    assert [(each.code, each.what) for each in check_pages(catalog, config)] == [
        (Code.PAGES_TOGETHER, f"the list of all servers: {said}"), (Code.PAGES_TOGETHER, f"profile 'large': {said}")
    ]  # fmt: skip
