"""`foretool login`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from listening import printing
from served import write_config

from foretool.server.commands.group import run
from foretool.server.commands.login import has_browser, say_until
from foretool.server.signin.vault import KnownSignIn, Vault

pytestmark = pytest.mark.usefixtures("own_vault")

OAUTH_SERVER = Path(__file__).parents[2] / "support" / "oauth_server.py"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with printing([sys.executable, str(OAUTH_SERVER)]) as found:
        yield found


def start(config: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "foretool", "login", "guarded", "--config", str(config), *more]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
    )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


@pytest.mark.slow
def test_a_link_is_printed_and_the_pasted_address_taken(url: str, tmp_path: Path) -> None:
    process = start(write_config(tmp_path, {"guarded": {"url": url}}), "--no-browser")
    assert process.stdin is not None and process.stdout is not None
    said = [process.stdout.readline() for _ in range(6)]
    link = said[2].strip()
    assert link.startswith(url.removesuffix("/mcp")) and "paste it here" in said[5]
    with pytest.raises(urllib.error.HTTPError) as redirected:
        urllib.request.build_opener(_NoRedirect).open(link)
    target = redirected.value.headers["location"]
    redirected.value.close()
    process.stdin.write("http://127.0.0.1/callback?code=c&state=wrong\n")
    process.stdin.write(f"{target}\n")
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "another sign-in" in rest and "Signed in to guarded" in rest and "a file that only you can read" in rest
    assert max(len(line) for line in rest.splitlines()) <= 120
    (kept,) = Vault.own().folder.glob("*.json")
    token = json.loads(kept.read_text())["access_token"]
    assert token not in rest


@pytest.mark.slow
def test_a_program_gets_events(url: str, tmp_path: Path) -> None:
    process = start(write_config(tmp_path, {"guarded": {"url": url}}), "--json-lines", "--no-browser")
    assert process.stdout is not None
    link = json.loads(process.stdout.readline())
    assert (link["event"], link["server"]) == ("link", "guarded")
    urllib.request.urlopen(link["url"]).close()
    rest, _ = process.communicate(timeout=60)
    done = json.loads(rest)
    assert (done["event"], done["server"], done["scope"], done["is_renewed"], done["kept"]) == (
        "signed_in", "guarded", "read", True, "file",
    )  # fmt: skip


@pytest.mark.slow
def test_nobody_is_waited_for_longer_than_was_said(url: str, tmp_path: Path) -> None:
    process = start(write_config(tmp_path, {"guarded": {"url": url}}), "--no-browser", "--timeout", "1")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and "no answer within 1 s" in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("local", "a program of this machine"),
        ("keyed", "hold an Authorization"),
        ("gaurded", 'did you mean "guarded"'),
    ],
)
def test_what_needs_no_sign_in_is_told(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = {
        "local": {"command": "true"},
        "guarded": {"url": "https://mcp.example/mcp"},
        "keyed": {"url": "https://mcp.example/mcp", "headers": {"Authorization": "Bearer x"}},
    }
    assert run(["login", name, "--config", str(write_config(tmp_path, servers))]) == 1
    assert said in capsys.readouterr().err


def test_a_browser_needs_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSH_CONNECTION", "SSH_TTY", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert not has_browser()
    monkeypatch.setenv("DISPLAY", ":0")
    assert has_browser()
    monkeypatch.setenv("SSH_CONNECTION", "x")
    assert not has_browser()


def test_how_long_a_sign_in_lasts_is_said() -> None:
    assert say_until(KnownSignIn("s", is_renewed=True)) == "renewed by itself"
    assert say_until(KnownSignIn("s")) == "until the server ends it"
    assert say_until(KnownSignIn("s", expires_at=1.0)).startswith("ended ")
    assert say_until(KnownSignIn("s", expires_at=4e9)).startswith("until 20")
