"""What an operator of `foretool serve --http` reads in its log, and what a client at the wrong address is told."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from command_fakes import echo
from served import write_config

from foretool.server.commands.group import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(100)]  # a proxy of its own

ANN, BOB = "kD93-xV27-qPz8-Lm41-Wt6r", "Zr58-bN60-hJc2-Yf97-Qs3u"


INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}  # fmt: skip


@contextmanager
def serving(path: Path) -> Iterator[tuple[str, Iterator[str]]]:
    """`foretool serve --http`: its address, and the lines of its log after the one that names it."""
    command = [sys.executable, "-m", "foretool", "serve", "--http", "127.0.0.1:0", "--config", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        lines = iter(running.stderr)
        home = next(line for line in lines if "serving on http://" in line).split("serving on ")[1].strip()
        try:
            yield home.removesuffix("/mcp"), lines
        finally:
            running.terminate()
            running.stderr.read()


def test_the_log_says_what_lets_more_through_than_was_meant_and_who_is_refused(tmp_path: Path) -> None:
    tokens = [{"name": name, "token": token, "profiles": ["dev"]} for name, token in (("ann", ANN), ("bob", BOB))]
    profiles = {"dev": {"servers": ["one", "gti"], "deny": ["one__wirte"]}, "secret": {}}
    path = write_config(tmp_path, {"one": echo()}, tokens=tokens, profiles=profiles)
    with serving(path) as (home, lines):
        found = [next(line for line in lines if code in line) for code in ("FT123", "FT603")]
        assert "'gti' matches no server" in found[0] and "'one__wirte' matches no tool" in found[1]

        def post(at: str, token: str) -> httpx2.Response:
            return httpx2.post(f"{home}{at}", json={}, headers={"authorization": f"Bearer {token}"}, timeout=60)

        told = {at: post(at, ANN) for at in ("/mcp", "/mcp/secret", "/mcp/none")}
        assert {each.status_code for each in told.values()} == {404}
        assert len({each.text for each in told.values()}) == 1, "what exists looks like what does not"
        assert "for this token; the MCP endpoints that it opens: /mcp/dev" in told["/mcp"].text
        for wrong in ("a-token-of-nobody", "another-one"):
            assert post("/mcp/dev", wrong).status_code == 401
        refused = next(line for line in lines if "refused" in line)
        assert "refused the token of a request from 127.0.0.1 (401" in refused and "nobody" not in refused
        written: dict[str, Any] = json.loads(path.read_text())
        written["foretool"]["tokens"] = tokens[:1]
        path.write_text(json.dumps(written))
        reloaded = next(line for line in lines if "refused" in line or "config reloaded" in line)
        assert "tokens: 1 removed (bob)" in reloaded, "the second wrong token waits for the sum of a minute"


def test_status_says_where_a_proxy_serves_over_http_and_who_is_connected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="ft-") as folder:  # the path of a socket has to be short
        monkeypatch.setenv("FORETOOL_SOCKETS", "")
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        said = read_status(tmp_path, capsys)
    assert re.search(r"serves on http://127\.0\.0\.1:\d+/mcp; connected: ann \(2\), bob \(1\)", said)
    told = "no server is told in which folders a client works (roots), as several people may use it"
    assert told in " ".join(said.split())
    assert ANN not in said


def read_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    tokens = [{"name": name, "token": token, "profiles": ["*"]} for name, token in (("ann", ANN), ("bob", BOB))]
    path = write_config(tmp_path, {"one": echo()}, tokens=tokens)
    with serving(path) as (home, _):
        for token in (ANN, ANN, BOB):
            headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
            can: dict[str, Any] = {"roots": {}} if token == BOB else {}
            greeting = {**INITIALIZE, "params": {**INITIALIZE["params"], "capabilities": can}}
            assert httpx2.post(f"{home}/mcp", json=greeting, headers=headers, timeout=60).status_code == 200
        for _ in range(100):
            run(["status", "--config", str(path)])
            said = " ".join(capsys.readouterr().out.split())
            if "serves on" in said:  # a proxy writes its state behind its answers
                break
            time.sleep(0.1)
        return said
