"""Secrets in commands, broken and hostile hooks: nothing but programs and subcommands reaches socket, store or log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_fakes import remember, write_config
from requirements import requirement
from served import Served
from squatter import NOBODY, ROOT, end, let_others_through, squat

from foretool.server.config import loader
from foretool.server.local.caller import NoAnswer, ask
from foretool.server.local.places import ProxyIdentity
from foretool.server.local.unix import SocketFolder
from foretool.storage.opening import open_store

SECRET = "hunter2hunter2"
COMMAND = f"GH_TOKEN={SECRET} gh pr list --search {SECRET} | grep {SECRET}; psql postgres://u:{SECRET}@h/{SECRET}"
GITHUB = {"list_pull_requests": "List pull requests of a GitHub repository."}


def event(command: Any = COMMAND, **more: Any) -> bytes:
    given = {"command": command, "description": f"with {SECRET}"}
    found = {
        "tool_name": "Bash",
        "tool_input": given,
        "tool_response": {"stdout": SECRET},
        "session_id": SECRET,
        **more,
    }
    return json.dumps({"cwd": "/", **found}).encode()


def run_hook(config: Path, folder: Path, stdin: bytes) -> None:
    """Run the hook, which is silent whatever comes."""
    env = {**os.environ, "FORETOOL_HINT_MS": "20000", "FORETOOL_SOCKETS": str(folder)}
    command = [sys.executable, "-m", "foretool", "hint", "--shell", "--config", str(config)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = write_config(tmp_path, {"github": {"command": "github"}})
    loaded = loader.load(path)
    with open_store(loaded.storage) as store:
        remember(loaded, store, "github", GITHUB)
    return path


@requirement("trust:shell")
def test_the_socket_sees_programs_and_subcommands_alone(config: Path, tmp_path: Path) -> None:
    with SocketFolder(str(tmp_path / "run"), make=True):
        squatter = squat(tmp_path / "run", ProxyIdentity(os.path.realpath(config), "", "/"), 0)
        run_hook(config, tmp_path / "run", event())
        said = end(squatter)
    assert '"commands":[["gh","pr","list"],["psql"]]' in said.replace(" ", "") and SECRET not in said


@pytest.mark.skipif(not ROOT, reason="only root can act as another user")
@requirement("local:own-user")
def test_another_users_socket_is_told_nothing(config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(0o777)
    let_others_through(tmp_path)
    squatter = squat(folder, ProxyIdentity(os.path.realpath(config), "", "/"), NOBODY)
    run_hook(config, folder, event())
    assert "gh" not in end(squatter)


@requirement("trust:shell")
def test_store_and_log_have_the_miss_and_no_secret_and_a_flood_changes_nothing(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORETOOL_SOCKETS", str(tmp_path / "run"))
    served = Served(config, "--alone", cwd=tmp_path)
    served.initialize()
    served.list_tools()
    run_hook(config, tmp_path / "run", event(cwd=str(tmp_path)))
    identity = ProxyIdentity(os.path.realpath(config), "", os.path.realpath(tmp_path))
    question: dict[str, Any] = {"commands": [["gh", "pr", "list"], ["gh", SECRET]], "cwd": str(tmp_path)}
    for number in range(300):
        ask(str(tmp_path / "run"), identity, "shell", {**question, "client": f"{SECRET}{number}"}, 20.0)
    for broken in ({"commands": SECRET}, {"commands": [[SECRET] * 9000]}, {SECRET: SECRET}):
        with pytest.raises(NoAnswer):
            ask(str(tmp_path / "run"), identity, "shell", broken, 20.0)
    assert served.list_tools()
    assert served.leave() == 0
    with open_store(loader.load(config).storage) as store:
        (miss,) = store.calls.misses()
    assert (miss.tool, miss.query) == ("github__list_pull_requests", "gh pr list")
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file
    assert SECRET not in "".join(served.errors)


@requirement("shell:silent")
@pytest.mark.parametrize(
    "stdin",
    [
        b"", b"no json", b"[1]", b"\xff\xfe", b"{" * 100_000, event(None), event({"a": 1}), event([1, [2]]),
        event("$(" * 30_000), event("\"`'" * 30_000), event("gh pr list;" * 400_000), event(tool_name=["Bash"]),
        event(cwd=["/"], tool_input="{not json"),
    ],
    ids=range(13),
)  # fmt: skip
def test_the_hook_is_silent_whatever_comes(config: Path, tmp_path: Path, stdin: bytes) -> None:
    run_hook(config, tmp_path / "run", stdin)
