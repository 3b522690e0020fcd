"""`${keyring:NAME}`: read at start, never shown, and never a sign-in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
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
        keyrings.check_keyring({})


def test_names_and_values_of_an_entry(ring: Ring) -> None:
    keyrings.keep_value("a", "1", {})
    assert keyrings.keyring_names("${keyring:a} $${keyring:b} ${c}") == {"a"}
    entry = {"env": {"K": "x${keyring:a}"}, "args": ["${keyring:a}", "b"], "disabled": True}
    assert keyrings.with_values(entry, {}) == {"env": {"K": "x1"}, "args": ["1", "b"], "disabled": True}


SCRIPT = """
printf pw | gnome-keyring-daemon --unlock --components=secrets > /dev/null
exec {python} - <<'END'
import os
from foretool.server.config import keyrings
keyrings.keep_value("server/TOKEN", "v\u00e4lue}} 1", os.environ)
print(keyrings.read_value("server/TOKEN", os.environ) == "v\u00e4lue}} 1")
keyrings.forget_value("server/TOKEN", os.environ)
try:
    keyrings.read_value("server/TOKEN", os.environ)
except keyrings.KeyringError as error:
    print(error)
END
"""


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.skipif(
    shutil.which("gnome-keyring-daemon") is None or shutil.which("dbus-run-session") is None,
    reason="needs gnome-keyring and dbus-run-session",
)
def test_the_secret_service_of_gnome_keeps_gives_and_forgets_a_value(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    environ = {**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run"), "XDG_DATA_HOME": ""}
    environ.pop("FORETOOL_KEYRING", None)
    words = ["dbus-run-session", "--", "sh", "-c", SCRIPT.format(python=sys.executable)]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["True", "it has no such entry"], done.stderr
