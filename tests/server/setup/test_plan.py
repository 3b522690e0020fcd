"""What `init` changes: every client gets foretool, and loses only what our file has."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from homes import NAMES, SECRET, write_home
from requirements import requirement

from foretool.server.config import jsonc
from foretool.server.setup.clients import Machine, client_files
from foretool.server.setup.merge import merge_servers
from foretool.server.setup.own_servers import read_own_servers
from foretool.server.setup.plan import plan, secrets_of
from foretool.server.setup.scan import scan

LAUNCH = ["/opt/foretool", "serve", "--config", "/mcp.json"]


def planned(home: Path, *, with_profiles: bool = False) -> tuple[dict[str, str], list[str]]:
    files = scan(client_files(Machine("linux", home, {}, home)))
    own = read_own_servers(home / "mcp.json")
    merged = merge_servers(files, own.servers(), "our file", keeps_apart=True)
    changes, problems = plan(own, merged, files, LAUNCH, with_profiles=with_profiles)
    return {str(each.path.relative_to(home)): each.after.decode() for each in changes}, problems


def test_every_client_has_foretool_instead(tmp_path: Path) -> None:
    write_home(tmp_path)
    changed, (problem,) = planned(tmp_path)
    assert "windsurf" in problem and len(changed) == 12
    ours = json.loads(changed["mcp.json"])["mcpServers"]
    assert sorted(ours) == sorted([*NAMES, "files-cursor"])
    assert ours["github"]["env"] == {"GITHUB_TOKEN": SECRET} and ours["off"]["disabled"] is True
    claude = json.loads(changed[".claude.json"])
    assert list(claude["mcpServers"]) == ["foretool"] and claude["projects"]["/home/ann/shop"]["mcpServers"] == {}
    assert claude["projects"]["/home/ann/shop"]["allowedTools"] == []
    codex = tomllib.loads(changed[".codex/config.toml"])
    assert list(codex["mcp_servers"]) == ["foretool"] and codex["tui"] == {"theme": "dark"}
    assert "developer:" in changed[".config/goose/config.yaml"] and "slack" not in changed[".config/goose/config.yaml"]
    assert "// Zed settings" in changed[".config/zed/settings.json"]
    assert list(jsonc.loads(changed[".cursor/mcp.json"])["mcpServers"]) == ["foretool"]


@requirement("setup:profiles")
def test_each_client_and_each_project_gets_a_profile_with_the_servers_that_it_had(tmp_path: Path) -> None:
    write_home(tmp_path)
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"ours": {"command": "o"}}}')
    changed, _ = planned(tmp_path, with_profiles=True)
    profiles = json.loads(changed["mcp.json"])["foretool"]["profiles"]
    assert profiles["cursor"] == {"servers": ["ours", "files-cursor", "linear"]}
    assert profiles["claude-code"] == {"servers": ["ours", "time", "notion"]}
    assert profiles["claude-code-shop"] == {"servers": ["ours", "time", "notion", "shop"]}
    claude = json.loads(changed[".claude.json"])
    for entries, profile in (
        (claude["mcpServers"], "claude-code"),
        (claude["projects"]["/home/ann/shop"]["mcpServers"], "claude-code-shop"),
    ):
        assert entries["foretool"]["args"] == [*LAUNCH[1:], "--profile", profile]
    for name, text in changed.items():
        (tmp_path / name).write_text(text)
    assert planned(tmp_path, with_profiles=True)[0] == {}


@requirement("setup:profiles")
def test_what_a_client_with_a_profile_has_got_since_goes_into_that_profile(tmp_path: Path) -> None:
    path = tmp_path / ".cursor/mcp.json"
    path.parent.mkdir()
    ours = {"command": "foretool", "args": ["serve", "--profile", "work"]}
    path.write_text(json.dumps({"mcpServers": {"foretool": ours, "new": {"command": "n"}}}))
    for servers, after in ((["old"], ["old", "new"]), (["n*"], ["n*"])):
        (tmp_path / "mcp.json").write_text(
            json.dumps(
                {"mcpServers": {"old": {"command": "o"}}, "foretool": {"profiles": {"work": {"servers": servers}}}}
            )
        )
        assert json.loads(planned(tmp_path)[0]["mcp.json"])["foretool"]["profiles"]["work"] == {"servers": after}


def test_values_of_variables_headers_and_addresses_are_secrets() -> None:
    secrets = secrets_of([
        {"env": {"TOKEN": "abcdef123"}, "headers": {"Authorization": "Bearer zyxwvu987", "K": "${K}"}},
        {"url": "https://a/?key=qwertz55", "oauth": {"clientId": "an-id", "clientSecret": "oauth-s3cret"}},
    ])  # fmt: skip
    assert secrets.redact('"an-id" oauth-s3cret') == '"an-id" [clientSecret]'
    assert secrets.redact("abcdef123 zyxwvu987 qwertz55 ${K}") == "[TOKEN] [Authorization] [key] ${K}"


def test_a_file_of_opencode_2_has_its_servers_one_level_deeper(tmp_path: Path) -> None:
    path = tmp_path / ".config/opencode/opencode.json"
    path.parent.mkdir(parents=True)
    server = {"type": "local", "command": ["x"], "timeout": {"startup": 5000, "execution": 90_000}, "disabled": True}
    path.write_text(json.dumps({"mcp": {"timeout": {"startup": 1000}, "servers": {"a": server}}}))
    changed, _ = planned(tmp_path)
    assert json.loads(changed["mcp.json"])["mcpServers"] == {"a": {"command": "x", "disabled": True, "timeout_s": 90}}
    assert json.loads(changed[".config/opencode/opencode.json"])["mcp"] == {
        "timeout": {"startup": 1000}, "servers": {"foretool": {"type": "local", "command": LAUNCH}},
    }  # fmt: skip
