"""What a server gets of our environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretool.server.config import loader
from foretool.server.config.environment import own_variables, safe_path, server_environment

OURS = {
    "HOME": "/home/me", "PATH": "/usr/bin:/bin", "USER": "me", "TERM": "xterm", "LANG": "de_DE.UTF-8",
    "GITHUB_TOKEN": "ghp_secret", "AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "aws_secret",
    "FORETOOL_TOKEN": "our_token", "MY_TOKEN": "our_other_token", "BASH_FUNC_x%%": "() { touch /tmp/x; }",
}  # fmt: skip
BASIC = {"HOME": "/home/me", "PATH": "/usr/bin:/bin", "USER": "me", "TERM": "xterm"}


def given(*inherit: str, **env: str) -> dict[str, str]:
    """What the server gets beyond the basic variables."""
    found = server_environment(OURS, inherit, ["MY_TOKEN"], env)
    assert found.items() >= BASIC.items()
    return {name: value for name, value in found.items() if name not in BASIC}


def test_a_server_gets_the_basic_variables_and_its_own() -> None:
    assert given() == {}
    assert given(A="1") == {"A": "1"}


def test_it_inherits_names_and_patterns_and_a_name_that_is_not_set_is_no_error() -> None:
    assert given("GITHUB_TOKEN", "NOT_SET") == {"GITHUB_TOKEN": "ghp_secret"}
    assert given("AWS_*") == {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "aws_secret"}
    assert given("AWS_*", AWS_ACCESS_KEY_ID="mine")["AWS_ACCESS_KEY_ID"] == "mine"
    assert given("github_token") == {}


@pytest.mark.parametrize("pattern", ["*", "*TOKEN", "FORETOOL_*", "[FM]*", "?Y_TOKEN"])
def test_no_pattern_means_a_token_of_ours_or_a_function_of_bash(pattern: str) -> None:
    assert {"FORETOOL_TOKEN", "MY_TOKEN", "BASH_FUNC_x%%"}.isdisjoint(given(pattern))


def test_exact_names_give_even_our_token_away_but_never_a_function() -> None:
    assert given("FORETOOL_TOKEN", "MY_TOKEN") == {"FORETOOL_TOKEN": "our_token", "MY_TOKEN": "our_other_token"}
    assert given("BASH_FUNC_x%%") == {}


def test_the_variables_of_our_own_credentials_are_known() -> None:
    block = {"token": "${A}", "encoder_key": "${env:B:-x}", "tokens": [{"name": "n", "token": "${C}"}], "bind": "${D}"}
    assert own_variables(block) == {"A", "B", "C"}
    assert own_variables(None) == own_variables([]) == frozenset()


@pytest.mark.parametrize(
    ("path", "safe"),
    [
        ("/usr/bin:/bin", "/usr/bin:/bin"),
        (".:/usr/bin::node_modules/.bin:/bin:", "/usr/bin:/bin"),
        ("~/bin:/bin", "/bin"),
    ],
)
def test_relative_folders_are_not_searched_for_programs(path: str, safe: str) -> None:
    assert safe_path(path) == safe
    assert server_environment({"PATH": path}, (), (), {}) == {"PATH": safe}
    assert server_environment({"PATH": path}, (), (), {"PATH": "."}) == {"PATH": "."}


def test_a_path_of_relative_folders_alone_becomes_that_of_the_system() -> None:
    assert all(folder.startswith("/") for folder in safe_path(".").split(":"))


@pytest.mark.parametrize("wanted", ["A=1", "${A}", "", "A B", 5])
def test_what_is_no_name_is_refused_with_its_place(wanted: object) -> None:
    entry = {"command": "x", "inherit": ["GOOD", wanted]}
    text = json.dumps({"mcpServers": {"bad": entry, "good": {"command": "x"}}})
    problem = loader.parse(text.encode(), Path("mcp.json"), {}).broken["bad"]
    assert "mcpServers.bad.inherit[1]: expected" in problem and "\n" not in problem


def test_inherited_credentials_are_secrets_and_places_are_not() -> None:
    document = {"mcpServers": {"one": {"command": "x", "inherit": ["*"]}}, "foretool": {"token": "${MY_TOKEN}"}}
    found = loader.parse(json.dumps(document).encode(), Path("mcp.json"), OURS)
    said = found.secrets.redact("ghp_secret aws_secret /home/me de_DE.UTF-8")
    assert said == "[GITHUB_TOKEN] [AWS_SECRET_ACCESS_KEY] /home/me de_DE.UTF-8"
    assert found.servers["one"].withheld == ("MY_TOKEN",)
