"""`${VAR}` in the config, and the secrets it brings."""

import os
from pathlib import Path

import pytest

from foretool.server.config.codes import Code
from foretool.server.config.errors import Invalid
from foretool.server.config.variables import Expansion, Secrets, collect, names_in, secrets_in_url


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
    with pytest.raises(Invalid, match="variable T is not set; export it or write") as caught:
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
    assert names_in(text) == {"A", "B", "E"}
    assert names_in(text, required=True) == {"A", "E"}
