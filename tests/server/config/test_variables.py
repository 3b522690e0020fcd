"""`${VAR}` in the config, and the secrets it brings."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from foretool.server.config import loader
from foretool.server.config.codes import Code
from foretool.server.config.errors import Invalid
from foretool.server.config.variables import (
    Expansion,
    Secrets,
    collect,
    own_variables,
    safe_path,
    secrets_in_url,
    server_environment,
    variable_names,
)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${A}", "one"),
        ("x${A}y${env:A}", "xoneyone"),
        ("${EMPTY:-two}${UNSET:-}", "two"),
        ("$${A} $A ${a b} ${", "${A} $A ${a b} ${"),
        ("${EMPTY}", ""),
    ],
)
def test_variables_are_replaced(written: str, value: str) -> None:
    assert Expansion({"A": "one", "EMPTY": ""}, ("x",)).text(written) == value


def test_a_missing_variable_is_named_with_the_way_out() -> None:
    expansion = Expansion({}, ("servers", "a")).at("env", "T")
    with pytest.raises(Invalid, match="variable T is not set: write its value there, or") as caught:
        expansion.text("${T}")
    assert caught.value.path == ("servers", "a", "env", "T")
    with pytest.raises(Invalid, match="asks the user in VS Code"):
        expansion.text("${input:token}")


def test_secrets_are_scrubbed_and_named_longest_first() -> None:
    expansion = Expansion({"KEY": "hunter22", "HOME": "/home/me"}, ("servers", "a"))
    expansion.at("headers", "Authorization").secret("Bearer ${KEY}", "Authorization")
    expansion.at("env", "PEM").secret("first line\nsecond line", "PEM")
    expansion.at("env", "PORT").secret("8080", "PORT")
    expansion.at("args", 0).text("${HOME}/docs")
    secrets = collect(expansion.secrets)
    assert secrets.redact("Bearer hunter22, hunter22, second line, 8080, /home/me") == (
        "[Authorization], [Authorization], [PEM], 8080, /home/me"
    )
    assert "hunter22" not in repr(secrets)


def test_passwords_and_queries_of_an_address_are_secrets() -> None:
    url = "https://me:opensesame@host/x?key=abcdefgh&n=1"
    assert collect(secrets_in_url(url)) == Secrets((("opensesame", "url"), ("abcdefgh", "url")))


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("${userHome}/notes", "/home/ann/notes"),
        ("a${pathSeparator}b${/}c", f"a{os.sep}b{os.sep}c"),
        ("${input:github-token}", "given"),
        ("${input:other}", None),
        ("${workspaceFolder:web}", None),
        ("${fileDirname}", None),
        ("${config:a.b}", None),
        ("${user_config.key}", None),
        ("$${userHome}", "${userHome}"),
    ],
)
def test_words_of_clients_are_expanded_or_refused(written: str, becomes: str | None) -> None:
    expansion = Expansion({"HOME": "/home/ann", "GITHUB_TOKEN": "given"}, ("x",))
    if becomes is None:
        with pytest.raises(Invalid) as refused:
            expansion.text(written)
        assert refused.value.code is Code.CLIENT_VARIABLE and written in str(refused.value)
    else:
        assert expansion.text(written) == becomes


def test_the_folder_of_the_client_and_its_name_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for word in ("workspaceFolder", "workspaceRoot", "cwd"):
        assert Expansion({}, ("x",)).text(f"${{{word}}}/a") == f"{tmp_path}/a"
    assert Expansion({}, ("x",)).text("${workspaceFolderBasename}") == tmp_path.name


def test_a_variable_of_the_environment_beats_a_word_of_clients() -> None:
    assert Expansion({"cwd": "/own"}, ("x",)).text("${cwd}") == "/own"


def test_words_of_clients_are_no_variables_that_a_text_needs() -> None:
    text = "${userHome} ${A} ${B:-x} ${input:c} $${D} ${env:E}"
    assert variable_names(text) == {"A", "B", "E"}
    assert variable_names(text, required=True) == {"A", "E"}


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
