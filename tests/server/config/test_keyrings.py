"""`${keyring:NAME}`: read at start, never shown, and never a sign-in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretool.server.config import keyrings
from foretool.server.config.codes import Code
from foretool.server.config.errors import Coded
from foretool.server.config.keyrings import KeyringError
from foretool.server.config.loader import Config, parse


class Ring:
    """A keyring in memory."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], str] = {}

    def set_password(self, service: str, name: str, secret: str) -> None:
        self.held[service, name] = secret

    def get_password(self, service: str, name: str) -> str | None:
        return self.held.get((service, name))

    def delete_password(self, service: str, name: str) -> None:
        del self.held[service, name]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    found = Ring()
    monkeypatch.setattr(keyrings, "open_keyring", lambda: found)
    return found


def config(value: str, **environ: str) -> Config:
    document = {"mcpServers": {"one": {"command": "a", "env": {"T": value}}, "two": {"command": "b"}}}
    return parse(json.dumps(document).encode(), Path("/nowhere/mcp.json"), {"HOME": "/nowhere", **environ})


def test_a_value_of_the_keyring_is_read_and_hidden(ring: Ring) -> None:
    keyrings.keep_value("one/T", "s3cret-word", {})
    server = config("x ${keyring:one/T}").servers["one"]
    assert server.env == {"T": "x s3cret-word"}
    assert server.secrets.redact("it said s3cret-word") == "it said [one/T]"
    keyrings.forget_value("one/T", {})
    assert ring.held == {}


def test_no_entry_of_a_config_reads_a_sign_in(ring: Ring) -> None:
    ring.set_password(keyrings.SERVICE, "guarded-0123", '{"access_token": "acc-0123456789"}')
    found = config("${keyring:guarded-0123}")
    assert "one" not in found.servers and "acc-0123456789" not in str(found.broken)


def test_one_server_without_its_value_harms_no_other_and_says_why(ring: Ring) -> None:
    found = config("${keyring:gone}")
    said = found.broken["one"]
    assert isinstance(said, Coded) and said.code is Code.KEYRING
    assert "mcpServers.one.env.T: gone cannot be read from the keyring: it has no such entry" in said
    assert list(found.servers) == ["two"]


def test_what_a_keyring_throws_is_told_without_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked() -> None:
        raise RuntimeError("s3cret-word")

    monkeypatch.setattr(keyrings, "open_keyring", locked)
    assert "refuses (RuntimeError); unlock it" in config("${keyring:a}").broken["one"]
    assert "FORETOOL_KEYRING is off" in config("${keyring:a}", FORETOOL_KEYRING="off").broken["one"]
    with pytest.raises(KeyringError, match="refuses"):
        keyrings.check({})


def test_names_and_values_of_an_entry(ring: Ring) -> None:
    keyrings.keep_value("a", "1", {})
    assert keyrings.names_in("${keyring:a} $${keyring:b} ${c}") == {"a"}
    entry = {"env": {"K": "x${keyring:a}"}, "args": ["${keyring:a}", "b"], "disabled": True}
    assert keyrings.with_values(entry, {}) == {"env": {"K": "x1"}, "args": ["1", "b"], "disabled": True}
