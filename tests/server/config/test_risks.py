"""What others could read or change: found, named by its place, and never shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretool.server.config import loader
from foretool.server.config.risks import Risk, find_risks, find_written_secrets, is_secret, open_host

TOKEN = "ghp_" + "a1" * 18
ENVIRON = {"HOME": "/home/me", "GITHUB_TOKEN": TOKEN, "REGION": "eu", "STRONG": "q8Zr_2LxVn0pTfYw7sKd"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "config"
    found.mkdir(mode=0o700)
    return found


def risks(folder: Path, servers: dict[str, Any], mode: int = 0o600, **settings: Any) -> list[Risk]:
    path = folder / "mcp.json"
    written = {"mcpServers": servers, "foretool": {"storage": str(folder / "data" / "s.sqlite3"), **settings}}
    path.write_text(json.dumps(written))
    path.chmod(mode)
    found = list(find_risks(loader.load(path, ENVIRON)))
    assert TOKEN not in repr(found) and "hunter2hunter2" not in repr(found)
    return found


HIDDEN: dict[str, dict[str, Any]] = {
    "env.GITHUB_TOKEN": {"command": "x", "env": {"GITHUB_TOKEN": TOKEN}},
    "env.DB_PASSWORD": {"command": "x", "env": {"DB_PASSWORD": "hunter2hunter2"}},
    "env.OTHER": {"command": "x", "env": {"OTHER": TOKEN}},
    "env.DATABASE_URL": {"command": "x", "env": {"DATABASE_URL": "postgres://me:hunter2hunter2@db/x"}},
    "headers.Authorization": {"url": "https://a.example/mcp", "headers": {"Authorization": f"Bearer {TOKEN}"}},
    "headers.X-Api-Key": {"url": "https://a.example/mcp", "headers": {"X-Api-Key": "hunter2hunter2"}},
    "args[1]": {"command": "x", "args": ["--api-key", "hunter2hunter2"]},
    "args[0]": {"command": "x", "args": ["--token=hunter2hunter2"]},
    "url": {"url": "https://a.example/mcp?key=hunter2hunter2"},
}


def test_what_http_clients_would_get_past_is_a_warning(folder: Path) -> None:
    def found(**settings: Any) -> list[str]:
        return [each.what for each in risks(folder, {"one": {"command": "x"}}, **settings)]

    assert found(bind="unix:/run/me/x.sock") == found(bind="[::1]:1") == []
    assert found(bind="0.0.0.0:80")[0].startswith("bind 0.0.0.0:80: serve --http does not encrypt")
    assert found(insecure_loopback=True)[0].startswith("insecure_loopback: with serve --http, every program")
    assert found(insecure_loopback=True, token="${STRONG}") == []
    assert found(token="hunter2hunter2")[0] == (
        "foretool: token has 14 characters, fewer than 16, so it could be guessed; serve --http does not accept it"
    )


@pytest.mark.parametrize("place", HIDDEN)
def test_a_file_with_a_secret_that_others_may_read_is_a_warning(folder: Path, place: str) -> None:
    servers = {"one": HIDDEN[place]}
    found = [each for each in risks(folder, servers, 0o644) if each.severity == "warning"]
    path = folder / "mcp.json"
    assert [(each.what, each.do) for each in found] == [
        (f"{path}: other users of this machine may read it, and it holds one: {place}", f"run: chmod 600 {path}")
    ]
    assert [each.severity for each in risks(folder, servers, 0o640)][:1] == ["warning"]
    assert [each for each in risks(folder, servers, 0o600) if each.severity == "warning"] == []


def test_a_secret_of_a_disabled_server_and_our_own_count(folder: Path) -> None:
    servers = {"off": {**HIDDEN["env.GITHUB_TOKEN"], "disabled": True}, "on": {"command": "x"}}
    found = risks(folder, servers, 0o644, token="0123456789abcdefghij", encoder_key="hunter2hunter2")
    assert found[0].what.endswith("it holds foretool.token, foretool.encoder_key, off: env.GITHUB_TOKEN")


def test_what_foretool_shows_to_an_authorization_server_counts(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(
        '{"foretool": {"access": {"client_secret": "s"}, "judge": {"key": "k"}, "seal_keys": ["b", "${S}"]}}'
    )
    assert find_written_secrets(path) == ["foretool.judge.key", "foretool.access.client_secret", "foretool.seal_keys"]


HARMLESS: list[dict[str, Any]] = [
    {"command": "x", "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "LOG_LEVEL": "debug", "REGION": "${REGION}"}},
    {"command": "x", "env": {"AUTH_ENABLED": "true", "TOKEN_LIMIT": "4000", "KEY_FILE": "/home/me/key.pem"}},
    {"command": "x", "args": ["-y", "@scope/server-keyboard", "--auth-mode", "none", "--port", "8080"]},
    {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}", "Accept": "x/y"}},
]


@pytest.mark.parametrize("entry", HARMLESS)
def test_variables_and_plain_words_are_no_secrets(folder: Path, entry: dict[str, Any]) -> None:
    assert risks(folder, {"one": entry}, 0o644) == []


def test_a_file_that_is_no_config_holds_nothing(folder: Path) -> None:
    path = folder / "x.json"
    for text in ("", "[]", "{", '{"mcpServers": [], "foretool": 5}', '{"mcpServers": {"a": {"env": 5, "args": 5}}}'):
        path.write_text(text)
        assert find_written_secrets(path) == []
    assert find_written_secrets(folder / "none.json") == []


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://a.example/mcp", "a.example"),
        ("HTTP://A.example:80", "a.example"),
        ("http://10.0.0.5:3000/mcp", "10.0.0.5"),
        ("http://localhost@evil.example/mcp", "evil.example"),
        ("http://127.0.0.1.evil.example/", "127.0.0.1.evil.example"),
        ("http://localhost.evil.example", "localhost.evil.example"),
        ("http://[2001:db8::1]/mcp", "[2001:db8::1]"),
        ("https://a.example/mcp", ""),
        ("http://localhost:3000", ""),
        ("http://me.localhost", ""),
        ("http://127.0.0.1:1/mcp", ""),
        ("http://127.8.9.10", ""),
        ("http://[::1]:3000/", ""),
        ("", ""),
    ],
)
def test_an_address_is_open_unless_it_is_encrypted_or_on_this_machine(url: str, host: str) -> None:
    assert open_host(url) == host


def test_credentials_over_plain_http_are_a_warning_and_other_headers_are_not(folder: Path) -> None:
    def found(**entry: Any) -> list[str]:
        return [each.what for each in risks(folder, {"one": entry})]

    said = "one: credentials are sent over http:// to a.example, open to all on the way"
    assert found(url="http://a.example/mcp", headers={"Authorization": "Bearer ${GITHUB_TOKEN}"}) == [said]
    assert found(url="http://a.example/mcp", headers={"X-Thing": "${GITHUB_TOKEN}"}) == [said]
    assert found(url="http://me:hunter2hunter2@a.example/mcp") == [said]
    assert found(url="http://a.example/mcp", headers={"Accept": "text/plain"}) == []
    assert found(url="http://127.0.0.1/mcp", headers={"Authorization": "Bearer ${GITHUB_TOKEN}"}) == []


def test_the_key_of_an_encoder_over_plain_http_is_a_warning(folder: Path) -> None:
    def found(url: str) -> list[str]:
        written = {"encoder": "m", "encoder_url": url, "encoder_key": "${GITHUB_TOKEN}"}
        return [each.what for each in risks(folder, {"one": {"command": "x"}}, **written)]

    assert found("http://a.example/v1") == ["foretool.encoder_key is sent over http:// to a.example"]
    assert found("https://a.example/v1") == found("http://127.0.0.1:8080/v1") == []


@pytest.mark.parametrize(
    "args", [["--header", f"Authorization: Bearer {TOKEN}"], ["--token", "${GITHUB_TOKEN}"], ["x", "${GITHUB_TOKEN}"]]
)
def test_a_secret_in_an_argument_is_a_note(folder: Path, args: list[str]) -> None:
    (note,) = risks(folder, {"one": {"command": "x", "args": args}})
    assert (note.severity, note.what.partition(" is")[0]) == ("note", "one: args[1]")


def test_a_file_that_others_may_write_is_a_warning(folder: Path) -> None:
    (warning,) = risks(folder, {"one": {"command": "x"}}, 0o666)
    assert warning.what.endswith("may write " + str(folder / "mcp.json") + ", and what a config says runs as you")
    folder.chmod(0o777)
    assert {each.what.partition(":")[0] for each in risks(folder, {"one": {"command": "x"}})} == {
        str(folder / "mcp.json"), str(folder / "data" / "s.sqlite3")
    }  # fmt: skip


def test_what_looks_like_a_secret() -> None:
    assert is_secret("", TOKEN) and is_secret("", "sk-ant-api03-" + "x" * 20)
    assert not is_secret("", "sk-learn") and not is_secret("", "a-perfectly-ordinary-name-of-a-package")
    assert is_secret("API_KEY", "abcd") and not is_secret("API_KEY", "abc")
