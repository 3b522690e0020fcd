"""Secrets move out of entries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_fakes import write_config

from foretool.server.config import keyrings
from foretool.server.config.loader import load
from foretool.server.setup.secrets import move_secrets

TOKEN = "ghp_0123456789abcdefABCDEF0123456789abcd"


def entries() -> dict[str, dict[str, Any]]:
    return {
        "github": {"command": "npx", "env": {"GITHUB_TOKEN": TOKEN, "LANG": "C", "KEY": "${KEY}"}},
        "linear": {"url": "https://h/mcp", "headers": {"Authorization": f"Bearer {TOKEN}", "X-Team": "core"}},
    }


def test_secrets_go_into_the_keyring_and_the_rest_stays() -> None:
    found = entries()
    moved = move_secrets(found, "keyring", {})
    assert found["github"]["env"] == {
        "GITHUB_TOKEN": "${keyring:github/GITHUB_TOKEN}", "LANG": "C", "KEY": "${KEY}",
    }  # fmt: skip
    assert found["linear"]["headers"] == {"Authorization": "Bearer ${keyring:linear/Authorization}", "X-Team": "core"}
    assert moved.values == {"github/GITHUB_TOKEN": TOKEN, "linear/Authorization": TOKEN}
    assert [each[:2] for each in moved.written] == [
        ("github", ("env", "GITHUB_TOKEN")), ("linear", ("headers", "Authorization")),
    ]  # fmt: skip
    assert TOKEN not in repr(moved)


@pytest.mark.parametrize("environ", [{}, {"GITHUB_TOKEN": "another"}])
def test_a_variable_takes_the_place_of_a_secret_only_where_it_holds_it(environ: dict[str, str]) -> None:
    found = entries()
    moved = move_secrets(found, "env", environ)
    assert found == entries() and not moved.written
    assert "github: GITHUB_TOKEN stays in the file" in moved.left[0] and TOKEN not in str(moved.left)
    assert len(moved.left) == 2
    moved = move_secrets(found, "env", {"GITHUB_TOKEN": TOKEN})
    assert found["github"]["env"]["GITHUB_TOKEN"] == "${GITHUB_TOKEN}" and moved.values == {}
    assert found["linear"]["headers"]["Authorization"] == "Bearer ${GITHUB_TOKEN}"


ARGUMENTS: list[tuple[list[str], list[str], dict[str, str]]] = [
    (["--api-key", "abcd1234"], ["--api-key", "${keyring:s/api-key}"], {"s/api-key": "abcd1234"}),
    (["--token=abcd=12 34"], ["--token=${keyring:s/token}"], {"s/token": "abcd=12 34"}),
    (["-e", "GITHUB_TOKEN=" + TOKEN], ["-e", "GITHUB_TOKEN=${keyring:s/GITHUB_TOKEN}"], {"s/GITHUB_TOKEN": TOKEN}),
    (["--header", "Authorization: Bearer abc.def"], ["--header", "Authorization: Bearer ${keyring:s/Authorization}"],
     {"s/Authorization": "abc.def"}),
    (["-y", "x", TOKEN], ["-y", "x", "${keyring:s/args-2}"], {"s/args-2": TOKEN}),
    (["sh", f"A={TOKEN} run; echo {TOKEN[:-1]}x"], ["sh", "A=${keyring:s/args-1} run; echo ${keyring:s/args-1-2}"],
     {"s/args-1": TOKEN, "s/args-1-2": TOKEN[:-1] + "x"}),
    (["-c", '{"apiKey":"k-1234", "region": "eu"}'], ["-c", '{"apiKey":"${keyring:s/apiKey}", "region": "eu"}'],
     {"s/apiKey": "k-1234"}),
    (["postgresql://ann:s3cr@t@h:5432/db?ssl=off"], ["postgresql://ann:${keyring:s/password}@h:5432/db?ssl=off"],
     {"s/password": "s3cr@t"}),
    (["--url=https://h/mcp?api_key=abcd1234&to=eu#top"], ["--url=https://h/mcp?api_key=${keyring:s/api_key}&to=eu#top"],
     {"s/api_key": "abcd1234"}),
    (["--password", "one", "--passphrase", "twoo"], ["--password", "one", "--passphrase", "${keyring:s/passphrase}"],
     {"s/passphrase": "twoo"}),
]  # fmt: skip


@pytest.mark.parametrize(("args", "written", "values"), ARGUMENTS)
def test_secrets_in_arguments_move_and_come_back_as_the_same_text(
    args: list[str], written: list[str], values: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = {"s": {"command": "npx", "args": args}}
    moved = move_secrets(found, "keyring", {})
    assert (found["s"]["args"], moved.values) == (written, values)
    monkeypatch.setattr(keyrings, "read_value", lambda name, environ: values[name])
    assert load(write_config(tmp_path, found)).servers["s"].args == tuple(args)
    assert not any(value in repr(moved) for value in values.values())
    assert move_secrets(found, "keyring", {}).written == []


@pytest.mark.parametrize(
    "args",
    [["--api-key", "${KEY}"], ["--port", "8080"], ["--key-file", "/home/ann/key.pem"], ["--token-limit", "4000"],
     ["--auth", "true"], ["--token", "--verbose"], ["https://h/mcp?region=eu"], ["http://sk-host-of-mine-example/mcp"],
     ["-y", "@modelcontextprotocol/server-memory"], ["ann@h:/path"], [5], ["--password"], ["--header", "Accept: json"]],
)  # fmt: skip
def test_what_is_no_secret_stays(args: list[Any]) -> None:
    found = {"s": {"command": "npx", "args": list(args)}}
    assert move_secrets(found, "keyring", {}).values == {}
    assert found == {"s": {"command": "npx", "args": args}}


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("https://ann:pw%20d@h/mcp", "https://ann:${keyring:s/password}@h/mcp"),
        (f"https://{TOKEN}@h/mcp", "https://${keyring:s/user}@h/mcp"),
        (f"https://h/s/{TOKEN}/mcp?x=1", "https://h/s/${keyring:s/path}/mcp?x=1"),
        ("https://h/?token=abcd&key=abcd", "https://h/?token=${keyring:s/token}&key=${keyring:s/key}"),
        ("https://h/mcp?token=abcd&token=efgh", "https://h/mcp?token=${keyring:s/token}&token=${keyring:s/token-2}"),
        ("https://h/mcp?code=1&page=two", "https://h/mcp?code=1&page=two"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["url", "serverUrl", "httpUrl"])
def test_secrets_in_addresses_move(
    key: str, url: str, written: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = {"s": {key: url}}
    moved = move_secrets(found, "keyring", {})
    assert found == {"s": {key: written}}
    assert all(position == (key,) for _, position, _ in moved.written)
    monkeypatch.setattr(keyrings, "read_value", lambda name, environ: moved.values[name])
    assert load(write_config(tmp_path, found)).servers["s"].url == url


def test_a_variable_of_any_name_that_holds_the_value_takes_its_place() -> None:
    found = {"s": {"command": "x", "args": ["--api-key", "abcd1234"]}, "t": {"url": "https://h/?key=abcd1234"}}
    moved = move_secrets(
        found, "env", {"A": "abcd1234", "EXA_API_KEY": "abcd1234", "Z_TOKEN": "abcd1234", "not a name": "abcd1234"}
    )
    assert (
        found["s"]["args"] == ["--api-key", "${EXA_API_KEY}"] and found["t"]["url"] == "https://h/?key=${EXA_API_KEY}"
    )
    assert moved.left == [] and moved.values == {}
    found = {"s": {"command": "x", "args": ["--api-key", "abcd1234"]}}
    assert move_secrets(found, "env", {}).left == [
        "s: api-key stays in the file (args[1]): this shell has no variable of that value"
    ]


def test_a_name_that_an_entry_reads_already_is_not_given_to_another_value() -> None:
    found = {"s": {"command": "x", "env": {"KEY": "${keyring:s/key}"}, "args": ["--key", "abcd1234"]}}
    assert move_secrets(found, "keyring", {}).values == {"s/key-2": "abcd1234"}


def test_what_was_moved_is_not_moved_again() -> None:
    found = entries()
    move_secrets(found, "keyring", {})
    assert move_secrets(found, "keyring", {}).written == []
