"""Attacks on the user's secrets: a server looks for what it was not given, and asks the user for it."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from http_callers import JSON_AND_EVENTS
from listening import over_http
from requirements import requirement
from served import Served, wait_until, write_config

from foretool.server import doctor
from foretool.server.config import loader

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[1] / "support"
SECRETS = {
    "GITHUB_TOKEN": "ghp_0123456789abcdef",
    "AWS_SECRET_ACCESS_KEY": "aws0123456789abcdef",
    "ANTHROPIC_API_KEY": "sk-ant-0123456789",
    "FORETOOL_TOKEN": "our-own-token-0123456789",
    "MY_TOKEN": "our-other-token-0123456789",
    "LD_PRELOAD_HINT": "anything",
    "HTTPS_PROXY": "http://user:password@proxy.example:3128",
}


def tells(*options: str, **entry: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SUPPORT / "telling_upstream.py"), *options], **entry}


def serve(folder: Path, servings: list[Served], servers: dict[str, Any], **settings: Any) -> Served:
    environ = {"HOME": str(folder), "PATH": os.environ["PATH"], **SECRETS}
    served = Served(write_config(folder, servers, **settings), "--alone", env=environ)
    servings.append(served)
    served.initialize()
    served.list_tools()
    return served


def told(served: Served, server: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(served.call(f"{server}__tell"))
    return found


@requirement("trust:environment:short")
def test_a_server_gets_no_variable_that_nobody_gave_it(tmp_path: Path, servings: list[Served]) -> None:
    servers = {
        "plain": tells(),
        "own": tells(env={"A": "1", "B": "${GITHUB_TOKEN}"}),
        "named": tells(inherit=["GITHUB_TOKEN", "NOT_SET"]),
        "pattern": tells(inherit=["AWS_*", "*TOKEN"]),
        "all": tells(inherit=["*"]),
        "ours": tells(inherit=["FORETOOL_TOKEN"]),
    }
    served = serve(tmp_path, servings, servers, token="${MY_TOKEN}")
    got = {name: told(served, name)["env"].keys() & {*SECRETS, "A", "B"} for name in servers}
    assert got == {
        "plain": set(),
        "own": {"A", "B"},
        "named": {"GITHUB_TOKEN"},
        "pattern": {"AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN"},
        "all": SECRETS.keys() - {"FORETOOL_TOKEN", "MY_TOKEN"},
        "ours": {"FORETOOL_TOKEN"},
    }
    assert served.leave() == 0


@requirement("trust:environment:short")
def test_no_secret_reaches_a_server_through_its_parents_or_our_workers(tmp_path: Path, servings: list[Served]) -> None:
    if not Path("/proc/self/environ").exists():
        pytest.skip("only Linux shows the environment of a process")
    served = serve(tmp_path, servings, {"one": tells()})
    found = told(served, "one")
    children = [
        int(each.name)
        for each in Path("/proc").iterdir()
        if each.name.isdecimal() and f"PPid:\t{served.process.pid}\n" in _status(each)
    ]
    assert found["pid"] in children and len(children) >= 2  # the server, and what watches over it
    for child in children:
        held = Path(f"/proc/{child}/environ").read_bytes()
        assert [name for name, value in SECRETS.items() if value.encode() in held] == []


def _status(process: Path) -> str:
    try:
        return (process / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@requirement("trust:environment:files")
def test_a_server_inherits_no_open_file_of_ours(tmp_path: Path, servings: list[Served]) -> None:
    served = serve(tmp_path, servings, {"one": tells(), "two": tells()})
    assert (told(served, "one")["files"], told(served, "two")["files"]) == ([], [])


@requirement("trust:environment:short", "trust:environment:files")
def test_behind_http_it_gets_no_more_and_neither_the_socket_nor_a_client_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    servers = {"one": tells(), "all": tells(inherit=["*"])}
    config = write_config(tmp_path, servers, insecure_loopback=True, token="")
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    with over_http(config) as url:
        for server in servers:
            name = f"{server}__tell"
            params = {"name": name, "arguments": {}, "_meta": meta}
            headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name}
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            answer = httpx2.post(url, json=request, headers={**JSON_AND_EVENTS, **headers}, timeout=30)
            line = next(line for line in answer.text.splitlines() if "result" in line).removeprefix("data: ")
            found = json.loads(json.loads(line)["result"]["content"][0]["text"])
            assert found["files"] == []
            held = found["env"].keys() & SECRETS.keys()
            assert held == (set() if server == "one" else SECRETS.keys() - {"FORETOOL_TOKEN"})


@requirement("trust:environment:doctor")
def test_a_server_that_asks_for_a_secret_gets_the_user_asked_and_not_the_model(
    tmp_path: Path, servings: list[Served]
) -> None:
    servers = {"needy": tells("--need", "GITHUB_TOKEN"), "lacking": tells("--need", "SLACK_BOT_TOKEN")}
    served = serve(tmp_path, servings, servers)
    answers = [served.call(f"{name}__tell") for name in servers]
    assert "GITHUB_TOKEN is not set" in answers[0] and "SLACK_BOT_TOKEN is not set" in answers[1]
    assert not any("inherit" in json.dumps(message) for message in served.seen), "a model could follow the advice"

    def errors() -> dict[str, str]:
        with closing(sqlite3.connect(tmp_path / "store.sqlite3")) as store:
            return dict(store.execute("SELECT upstream, last_error FROM upstream_states").fetchall())

    assert wait_until(lambda: "inherit" in errors().get("needy", ""))
    assert errors()["needy"].endswith('if it may have it, add "inherit": ["GITHUB_TOKEN"] to its entry')
    assert served.leave() == 0
    logged = "\n".join(served.errors)
    assert 'set here but not given to it; if it may have it, add "inherit": ["GITHUB_TOKEN"]' in logged
    assert "SLACK_BOT_TOKEN is not set here" in logged
    assert not any(value in logged + "".join(answers) for value in SECRETS.values())


@requirement("trust:environment:doctor")
def test_the_doctor_names_the_variable_and_never_one_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    servers = {
        "needy": tells("--need", "GITHUB_TOKEN"),
        "greedy": tells("--need", "FORETOOL_TOKEN", "--need", "MY_TOKEN"),
        "fed": tells("--need", "GITHUB_TOKEN", inherit=["GITHUB_TOKEN"]),
    }
    found = doctor.diagnose(loader.load(write_config(tmp_path, servers, token="${MY_TOKEN}")))
    assert {each.upstream: each.is_well for each in found.upstreams} == {"needy": False, "greedy": False, "fed": True}
    advice = {each.what.partition(":")[0]: each.do for each in found.findings if each.area == "upstream"}
    assert advice["needy"].endswith('add "inherit": ["GITHUB_TOKEN"] to its entry')
    assert "inherit" not in advice["greedy"]
    assert not any(value in repr(found) for value in SECRETS.values())


@requirement("trust:folder:children")
def test_a_relative_folder_of_path_finds_no_program_of_the_client_folder(
    tmp_path: Path, servings: list[Served]
) -> None:
    repository = tmp_path / "repository"
    (repository / "bin").mkdir(parents=True)
    ran = tmp_path / "ran"
    for folder in (repository, repository / "bin"):
        (folder / "some-server").write_text(f"#!/bin/sh\ntouch {ran}\n")
        (folder / "some-server").chmod(0o755)
    servers = {"one": {"command": "some-server", "cwd": "${workspaceFolder}"}, "two": {"command": "some-server"}}
    environ = {"HOME": str(tmp_path), "PATH": f"bin:.::{os.environ['PATH']}:"}
    served = Served(write_config(tmp_path, servers), "--alone", cwd=repository, env=environ)
    servings.append(served)
    served.initialize()
    served.list_tools()
    for name in servers:
        assert "was not found" in served.call(f"{name}__x")
    assert served.leave() == 0
    assert not ran.exists()


@requirement("trust:environment:migration")
def test_the_change_is_said_once_and_only_to_whom_it_concerns(tmp_path: Path, servings: list[Served]) -> None:
    def warnings() -> list[str]:
        served = serve(tmp_path, servings, {"one": tells(), "two": tells(inherit=["X"])})
        assert served.leave() == 0
        return [line for line in served.errors if "since this version" in line]

    assert warnings() == []  # a new store
    with sqlite3.connect(tmp_path / "store.sqlite3") as store:
        store.execute("DELETE FROM counters WHERE name LIKE 'told:%'")  # as a version before left it
    store.close()
    (warning,) = warnings()
    assert "If one of one fails" in warning and "GITHUB_TOKEN" in warning and "ghp_" not in warning
    assert warnings() == []


@requirement("trust:risks:file")
def test_a_config_with_secrets_that_others_may_read_is_reported_at_start_and_by_the_doctor(
    tmp_path: Path, servings: list[Served]
) -> None:
    servers = {"one": tells(env={"SOME_API_KEY": "abcdef0123456789"})}
    config = write_config(tmp_path, servers)
    config.chmod(0o644)
    found = doctor.diagnose(loader.load(config))
    (finding,) = [each for each in found.findings if each.do.startswith("run: chmod 600")]
    assert "one: env.SOME_API_KEY" in finding.what and finding.severity == "warning"
    served = Served(config)
    servings.append(served)
    served.initialize()
    assert served.leave() == 0
    assert len([line for line in served.errors if f"chmod 600 {config}" in line]) == 1
    assert "abcdef0123456789" not in repr(found) + "".join(served.errors)
    config.chmod(0o600)
    assert not [each for each in doctor.diagnose(loader.load(config)).findings if "chmod" in each.do]


@requirement("trust:risks:wire")
def test_credentials_over_plain_http_are_reported_at_start_and_by_the_doctor(
    tmp_path: Path, servings: list[Served]
) -> None:
    remote = {"url": "http://192.0.2.1:9/mcp", "headers": {"Authorization": "Bearer abcdef0123456789"}}
    config = write_config(tmp_path, {"far": remote})
    config.chmod(0o600)
    found = doctor.diagnose(loader.load(config), 0.2)
    (finding,) = [each for each in found.findings if "over http://" in each.what]
    assert (finding.severity, finding.what.partition(" over")[0]) == ("warning", "far: credentials are sent")
    served = Served(config)
    servings.append(served)
    served.initialize()
    assert served.leave() == 0
    assert len([line for line in served.errors if "over http:// to 192.0.2.1" in line]) == 1
