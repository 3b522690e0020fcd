"""The same server is one, whoever has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from homes import write_home
from requirements import requirement

from foretool.server.setup.clients import Machine, client_files
from foretool.server.setup.merge import Merged, Origin, find_widest, merge_servers
from foretool.server.setup.scan import scan


def merged(home: Path, known: dict[str, Any] | None = None, *, keeps_apart: bool = False) -> Merged:
    files = scan(client_files(Machine("linux", home, {}, home)))
    return merge_servers(files, known or {}, "our file", keeps_apart=keeps_apart)


def test_what_our_file_has_stays(tmp_path: Path) -> None:
    write_home(tmp_path)
    known = {"clock": {"command": "uvx", "args": ["mcp-server-time"], "pin": ["*"]}, "git": {"command": "other"}}
    found = merged(tmp_path, known)
    assert "time" not in found.entries and "git" not in found.entries and found.known["git"] == {"command": "other"}
    assert "time (Claude Desktop) is the same server as clock, so it keeps that name" in found.notes
    assert any(each.startswith("git, git-codex: two servers, because our file and Codex") for each in found.notes)


FILES = ["-y", "@modelcontextprotocol/server-filesystem"]


def files(*folders: str, **more: Any) -> dict[str, Any]:
    return {"command": "npx", "args": [*FILES, *folders], **more}


@requirement("setup:conflicts")
@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        (files("~/code/shop"), files("${HOME}/code"), files("${HOME}/code")),
        (files("/srv"), files("/srv/a", "/srv/b"), files("/srv")),
        (files("/a", "/b"), files("/b", "/c"), files("/a", "/b", "/c")),
        (files("/a"), files("/a", env={"LOG": "1"}), files("/a", env={"LOG": "1"})),
        (files("/a", env={"LOG": "1"}), files("/b"), files("/a", "/b", env={"LOG": "1"})),
        ({"command": "npx", "args": ["pkg"]}, {"command": "npx", "args": ["-y", "pkg@latest"]},
         {"command": "npx", "args": ["pkg"]}),
        ({"command": "uvx", "args": ["time"]}, {"command": "/usr/bin/uvx", "args": ["time", "--zone", "UTC"]},
         {"command": "/usr/bin/uvx", "args": ["time", "--zone", "UTC"]}),
        ({"url": "https://a"}, {"url": "https://a", "headers": {"K": "v"}},
         {"url": "https://a", "headers": {"K": "v"}}),
    ],
)  # fmt: skip
def test_of_two_entries_of_one_server_the_one_that_does_what_both_do_is_kept(
    first: dict[str, Any], second: dict[str, Any], kept: dict[str, Any]
) -> None:
    assert find_widest(first, second) == kept


@requirement("setup:conflicts")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"command": "g", "env": {"TOKEN": "one"}}, {"command": "g", "env": {"TOKEN": "two"}}),
        ({"command": "g", "env": {"A": "1"}}, {"command": "g", "env": {"B": "1"}}),
        ({"command": "pg", "args": ["--db", "/a"]}, {"command": "pg", "args": ["--db", "/a/b"]}),
        ({"command": "x", "args": ["--zone", "UTC"]}, {"command": "x", "args": ["--zone", "CET"]}),
        ({"command": "x", "cwd": "/a"}, {"command": "x", "cwd": "/b"}),
        ({"command": "x"}, {"url": "https://a"}),
        ({"command": "x", "args": 5, "env": 5}, {"command": "x", "args": ["a"], "env": {"A": "b"}, "cwd": "/a"}),
    ],
)
def test_other_accounts_options_and_programs_are_other_servers(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert find_widest(first, second) is None


def write_clients(home: Path, **servers: Any) -> None:
    """Write a file for Cursor, for Copilot CLI and for Claude Code, each with its servers."""
    places = {"cursor": ".cursor/mcp.json", "copilot": ".copilot/mcp-config.json", "claude": ".claude.json"}
    for client, entries in servers.items():
        path = home / places[client]
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(entries if client == "claude" else {"mcpServers": entries}))
    (home / ".claude").mkdir(exist_ok=True)


@requirement("setup:conflicts")
def test_what_one_client_restricts_and_another_does_not_is_not_restricted_and_is_said(tmp_path: Path) -> None:
    write_clients(tmp_path, cursor={"f": {"command": "x", "disabled": True}}, copilot={
        "f": {"command": "x", "tools": ["a"], "timeout": 90_000},
    })  # fmt: skip
    found = merged(tmp_path)
    assert found.entries == {"f": {"command": "x", "timeout_s": 90}}
    assert found.notes == ["f: Copilot CLI had only some of its tools; all clients have all of them"]


def test_two_names_of_one_server_stay_two_where_a_client_has_both(tmp_path: Path) -> None:
    local = {"projects": {"/p": {"mcpServers": {"there": {"command": "./x"}}}}}
    write_clients(tmp_path, cursor={"a": {"command": "x"}, "b": {"command": "x"}}, claude=local)
    found = merged(tmp_path)
    assert {name: entry["command"] for name, entry in found.entries.items()} == {"a": "x", "b": "x", "there": "./x"}
    assert found.entries["there"]["cwd"] == "/p"
    assert found.notes == ["b (Cursor) is the same server as a; both names stay, as Cursor has both"]


@requirement("setup:conflicts")
def test_servers_that_one_client_or_project_had_alone_are_known(tmp_path: Path) -> None:
    write_clients(
        tmp_path, cursor={"both": {"command": "b"}, "one": {"command": "o"}}, copilot={"both": {"command": "b"}},
        claude={"projects": {"/home/ann/shop": {"mcpServers": {"shop": {"command": "s"}}}}},
    )  # fmt: skip
    found = merged(tmp_path)
    assert found.alone() == {
        "one": Origin("Cursor", "cursor"), "shop": Origin("Claude Code", "claude-code", "/home/ann/shop"),
    }  # fmt: skip


def in_project(folder: Path, home: Path, servers: dict[str, Any]) -> Merged:
    """Merge the servers of a home and of a project, as with `--project --yes`."""
    folder.mkdir(exist_ok=True)
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    files = scan(client_files(Machine("linux", home, {}, folder)))
    return merge_servers(files, {}, "our file")


@requirement("trust:setup:swap")
def test_a_repository_changes_no_server_of_the_user(tmp_path: Path) -> None:
    """A cloned repository names a trusted server, with an option, a variable or a restriction of its own."""
    trusted = {"command": "uvx", "args": ["time"], "env": {"A": "1"}, "disabledTools": ["wipe"], "disabled": True}
    write_clients(tmp_path, cursor={"time": trusted})
    entry = {"command": "uvx", "args": ["time"], "env": {"A": "1"}, "exclude": ["wipe"], "disabled": True}
    assert in_project(
        tmp_path / "p", tmp_path, {"time": {"command": "uvx", "args": ["time"], "env": {"A": "1"}}}
    ).entries == {"time": entry}
    swap = {
        "command": "uvx",
        "args": ["time", "--index-url", "https://evil"],
        "env": {"A": "1", "UV_INDEX": "https://evil"},
    }
    found = in_project(tmp_path / "p", tmp_path, {"time": swap}).entries
    assert found.pop("time") == entry and list(found) == ["time-claude-code"]


def test_a_server_that_names_no_path_is_the_same_in_a_project_and_everywhere(tmp_path: Path) -> None:
    write_clients(
        tmp_path, copilot={"time": {"command": "uvx", "args": ["time"]}, "run": {"command": "node", "args": ["s.js"]}},
        claude={"projects": {f"/{each}": {"mcpServers": {
            "time": {"command": "uvx", "args": ["time"]}, "run": {"command": "node", "args": ["s.js"]},
        }} for each in "ab"}},
    )  # fmt: skip
    found = merged(tmp_path)
    assert found.entries["time"] == {"command": "uvx", "args": ["time"]}
    assert sorted(each.get("cwd", "") for each in found.entries.values()) == ["", "", "/a", "/b"]
    assert "time: it starts in the folder of the config, as not only one project has it" in found.notes
    assert [each.partition(",")[0] for each in found.notes if "two servers" in each] == ["run", "run"]


def test_a_server_that_stands_in_a_file_twice_is_said(tmp_path: Path) -> None:
    cursor, claude = tmp_path / ".cursor/mcp.json", tmp_path / ".claude.json"
    cursor.parent.mkdir()
    cursor.write_text(
        '{"mcpServers": {"git": {"command": "a"},\n "git": {"command": "b", "env": {"A": "1", "A": "2"}}}}'
    )
    claude.write_text('{"theme": 1, "theme": 2, "mcpServers": {"x": {"command": "x"}},\n\n"mcpServers": {}}')
    found = merged(tmp_path)
    assert found.entries["git"]["command"] == "b" and "x" not in found.entries
    says = "stands in the file twice; only the last one, in line"
    assert found.notes == [
        f"mcpServers.git (Cursor): {says} 2, counts",
        f"mcpServers (Claude Code): {says} 3, counts",
    ]
