"""A remote server that wants a certificate of its clients (mTLS), over real TLS."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from listening import printing
from requirements import requirement
from served import Served, write_config

from foretool.server.commands.group import run

SERVER = Path(__file__).parents[1] / "support" / "tls_upstream.py"
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with printing([sys.executable, str(SERVER), str(tmp_path)], r"https://127\.0\.0\.1:\d+/mcp") as found:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        yield found


@pytest.mark.slow
@requirement("trust:sign-in:machine")
def test_a_certificate_of_the_config_is_shown_and_its_key_nowhere_else(url: str, tmp_path: Path) -> None:
    entry = {"url": url, "client_cert": "client.pem", "client_key": "client.key"}
    served = Served(write_config(tmp_path, {"guarded": entry}, policy="full", record="full"), env=dict(os.environ))
    try:
        served.initialize()
        assert served.call("guarded__whoami") == "you are the robot"
    finally:
        assert served.leave() == 0
    secret = (tmp_path / "client.key").read_text().splitlines()[1]
    written = b"".join(each.read_bytes() for each in tmp_path.glob("store.sqlite3*"))
    assert secret not in "\n".join(served.errors) and secret.encode() not in written


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "it wants a certificate of its clients"),
        ({"client_cert": "stranger.pem"}, "it wants a certificate of its clients"),
        ({"client_cert": "client.pem"}, "client_cert"),
        ({"client_cert": "none.pem"}, "No such file"),
    ],
)
def test_doctor_says_which_certificate_is_missing_or_wrong(
    more: dict[str, Any], said: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", "--json", "--config", str(write_config(tmp_path, {"guarded": {"url": url, **more}}))]) == 1
    (found,) = [each for each in json.loads(capsys.readouterr().out)["findings"] if each["area"] == "upstream"]
    assert "client_cert" in found["do"] and "within" not in found["what"]
    # TLS 1.3 says it only after the handshake, and the end of the connection may overtake it.
    assert said in found["what"] or "broke off at https" in found["what"]
    assert found["code"] == ("FT312" if said in found["what"] else "FT308")
