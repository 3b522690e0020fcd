"""Commands and servers that cannot be used, each of its own kind: seen once, and then not waited for."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from command_fakes import echo, write_config
from msgspec.structs import replace
from requirements import requirement
from slow_launcher import write_npx

from foretool.server import probing
from foretool.server.commands.group import run
from foretool.server.config import loader
from foretool.storage.opening import open_store

SILENT = {"command": sys.executable, "args": ["-S", "-c", "import sys; sys.stdin.read()"]}
PROGRAMS = {
    "missing": ({"command": "no-such-program-of-foretool"}, "FT201"),
    "exits": (
        {"command": sys.executable, "args": ["-S", "-c", "import sys; sys.exit('error: API_KEY is not set')"]},
        "FT303",
    ),
    "silent": (SILENT, "FT302"),
    "refused": ({"url": "http://127.0.0.1:9/mcp"}, "FT308"),
}


class Refusing(BaseHTTPRequestHandler):
    """Answers with the status that the path names."""

    def do_POST(self) -> None:
        self.send_response(int(self.path.strip("/")))
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_DELETE = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def refusing() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, list[str]]:
    """What a command says as JSON, and beside it."""
    run([*words, "--json"])
    out, beside = capsys.readouterr()
    return json.loads(out), beside.splitlines()


@requirement("start:dead")
def test_no_command_waits_for_servers_that_were_seen_to_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "")
    with refusing() as address:
        token = {"headers": {"Authorization": "Bearer t0p-s3cret"}}
        dead = {name: entry for name, (entry, _) in PROGRAMS.items()}
        dead |= {"unauthorized": {"url": f"{address}/401", **token}, "not-there": {"url": f"{address}/404"}}
        codes = {name: code for name, (_, code) in PROGRAMS.items()} | {"unauthorized": "FT312", "not-there": "FT313"}
        path = write_config(tmp_path, {"one": echo(), **dead})
        config = loader.load(path)
        probing.probe_servers(config, list(config.servers.values()), 2.0, may_repeat=False)
    where = ("--config", str(path))
    for more in ((), ("--tool", "one__echo")):
        began = time.monotonic()
        found, beside = command(capsys, "search", "echo", *more, *where)
        assert time.monotonic() - began < 2
        assert found["matches"][0]["tool"] == "one__echo"
        assert beside == [f"no tools of {', '.join(dead)}; `foretool list` says why"]
    listed, _ = command(capsys, "list", *where)
    failing = {each["name"]: each for each in listed if each["condition"] == "failing"}
    assert failing.keys() == dead.keys()
    for name, each in failing.items():
        assert f"[{codes[name]}]" in each["error"], each
        assert each["failures"] == 1 and time.time() - each["failed_at"] < 60
    tools, _ = command(capsys, "tools", *where)
    assert tools["failing_servers"] == tools["unlisted_servers"] == list(dead)
    assert "t0p-s3cret" not in config.storage.read_bytes().decode(errors="ignore")


@requirement("start:dead")
def test_a_failed_server_is_started_again_when_it_is_due_when_it_is_edited_and_by_a_doctor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = tmp_path / "works"
    script = f"import os, sys; os.path.exists({str(flag)!r}) or exit('no'); exec(open({echo()['args'][0]!r}).read())"
    entry = {"command": sys.executable, "args": ["-c", script], "env": {"KEY": "wrong"}}
    path = write_config(tmp_path, {"one": echo(), "dead": entry})
    where = ("--config", str(path))
    starts = "listing the tools of 1 server first: dead"
    command(capsys, "search", "echo", *where)
    assert starts not in command(capsys, "search", "echo", *where)[1]

    config = loader.load(path)
    with open_store(config.storage) as store:
        (failure,) = store.serving.failures()
        store.serving.save_failure(replace(failure, due_at=time.time() - 1))
    assert starts in command(capsys, "search", "echo", *where)[1]
    with open_store(config.storage) as store:
        (again,) = store.serving.failures()
    assert again.times == 2 and again.first_at == failure.first_at and again.due_at > time.time()

    path = write_config(tmp_path, {"one": echo(), "dead": {**entry, "env": {"KEY": "right"}}})
    assert starts in command(capsys, "search", "echo", *where)[1]

    flag.touch()
    command(capsys, "doctor", *where)
    listed, _ = command(capsys, "list", *where)
    assert {each["name"]: each["condition"] for each in listed} == {"one": "idle", "dead": "idle"}
    assert command(capsys, "search", "echo", *where)[1] == []


@requirement("start:dead")
def test_a_server_that_was_still_being_downloaded_is_not_remembered_as_dead(tmp_path: Path) -> None:
    npx = write_npx(tmp_path, 60, sys.executable, "-c", "")
    config = loader.load(
        write_config(tmp_path, {"one": {"command": npx, "args": ["-y", "some-server"]}, "two": echo()})
    )
    (probe, _) = probing.probe_servers(config, list(config.servers.values()), 1.0, may_load=False, may_repeat=False)
    assert probing.STILL_LOADING in probe.error
    with open_store(config.storage) as store:
        assert store.serving.failures() == []


@requirement("start:dead")
def test_a_password_cannot_be_told_from_what_is_kept_of_its_entry(tmp_path: Path) -> None:
    from foretool.server.config.servers import digest_entry, fingerprint

    digests = set()
    for value in ("a", "b", "c"):
        config = loader.load(write_config(tmp_path, {"one": {**SILENT, "env": {"PASSWORD": value}}}))
        digest = digest_entry(config.servers["one"])
        assert digest.startswith(fingerprint(config.servers["one"])) and len(digest) == 20
        digests.add(digest)
    assert len(digests) == 3
