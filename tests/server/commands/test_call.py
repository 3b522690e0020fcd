"""`foretool call` as a process: what it prints, how it ends, which proxy it uses, and what is kept of it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from requirements import requirement
from served import PATIENCE_S
from windows import Desk

from foretool.storage.opening import open_store

pytestmark = pytest.mark.slow


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path, servers=1, linger_s=20, record="full")
    yield desk
    desk.close()


def command(desk: Desk, *words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "foretool", "call", *words, "--config", str(desk.config)]


def environment(desk: Desk) -> dict[str, str]:
    return {**os.environ, "FORETOOL_SOCKETS": str(desk.sockets)}


def run_call(desk: Desk, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(desk, *words), input=given, capture_output=True, timeout=2 * PATIENCE_S, env=environment(desk),
        cwd=desk.folder, check=False,
    )  # fmt: skip


def set_rules(desk: Desk, server: dict[str, Any], **settings: Any) -> None:
    document = json.loads(desk.config.read_text())
    document["mcpServers"]["s0"] |= server
    document["foretool"] |= settings
    desk.config.write_text(json.dumps(document))


@requirement("shell:call")
def test_a_call_prints_the_result_joins_the_proxy_of_windows_and_is_on_record(desk: Desk) -> None:
    window = desk.opened()
    proxy = desk.proxy()
    big = b'{"n": 123456789012345678901234567890,\n "f": 1.50}'
    piped = run_call(desk, "s0__echo", "-", given=big)
    assert piped.returncode == 0 and b"\n" not in piped.stdout[:-1]
    assert "123456789012345678901234567890" in json.loads(piped.stdout)["content"][0]["text"]
    pairs = run_call(desk, "s0__echo", "who=Ada", "text=a=b", "--text")
    assert (pairs.stdout, pairs.stderr) == (b'{"who": "Ada", "text": "a=b"}\n', b"")
    assert desk.proxy() == proxy and len(desk.servers()) == 1
    window.leave()
    with open_store(desk.folder / "store.sqlite3") as store:
        sessions = {each.key: each.client for each in store.sessions.recent()}
        calls = store.calls.recent(-1)
        assert [(sessions[each.session], each.tool, each.outcome) for each in calls] == [
            ("foretool call", "s0__echo", "ok")
        ] * 2
        assert store.calls.misses(0.0) == []


@requirement("shell:call")
def test_exit_statuses_tell_what_failed_from_what_was_typed_wrong(desk: Desk) -> None:
    for words in (["[1]"], ["{"], ["word"], ["a=1", "a=2"], ["=1"], ["-"]):
        wrong = run_call(desk, "s0__echo", *words, given=b'"text"')
        assert (wrong.returncode, wrong.stdout) == (2, b""), words
        assert b"ARGUMENTS" in wrong.stderr or b"stdin" in wrong.stderr
    unknown = run_call(desk, "s0__ech")
    assert (unknown.returncode, unknown.stdout) == (1, b"") and b"did you mean s0__echo" in unknown.stderr
    assert b"foretool search finds tools by task" in unknown.stderr and b"discover_tools" not in unknown.stderr
    assert run_call(desk, "s0__echo", "--profile", "none").returncode == 2


@requirement("shell:rules")
def test_what_rules_refuse_or_nobody_can_be_asked_about_does_not_run(desk: Desk) -> None:
    set_rules(desk, {"deny": ["flood"]}, confirm="all")
    denied = run_call(desk, "s0__flood")
    assert (denied.returncode, denied.stdout) == (1, b"")
    asked = run_call(desk, "s0__echo", "a=1")
    assert asked.returncode == 1
    assert "it was not called on a terminal" in json.loads(asked.stdout)["content"][0]["text"]
    with open_store(desk.folder / "store.sqlite3") as store:
        assert [each.outcome for each in store.calls.recent(-1)] == ["refused", "refused"]


@requirement("shell:rules")
@pytest.mark.parametrize("within", ["call_tool", "call_tool_write", "call_tools"])
def test_no_tool_of_ours_takes_a_shell_round_a_rule(desk: Desk, within: str) -> None:
    set_rules(desk, {"deny": ["flood"]}, confirm="all", call_tools=True)
    for name in ("s0__flood", "s0__echo"):
        call = {"name": name, "arguments": {"a": 1}}
        done = run_call(desk, within, json.dumps({"calls": [call]} if within == "call_tools" else call))
        assert done.returncode == 1, (name, done.stdout)
        assert b'"a"' not in done.stdout
    with open_store(desk.folder / "store.sqlite3") as store:
        assert {each.outcome for each in store.calls.recent(-1)} == {"refused"}


@requirement("shell:rules")
@pytest.mark.parametrize(("typed", "status"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1), (b"\x04", 1)])
def test_consent_is_asked_on_a_terminal(desk: Desk, typed: bytes, status: int) -> None:
    set_rules(desk, {}, confirm="all")
    ours, theirs = pty.openpty()
    words = command(desk, "s0__echo", '{"a": "\\u009b31m\\u001b[2J"}', "--text")
    process = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(desk), cwd=desk.folder
    )
    os.close(theirs)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(ours, 1000)
    os.write(ours, typed)
    while True:
        try:
            shown += os.read(ours, 1000)
        except OSError:  # the terminal has no other end any more
            break
    assert process.wait(PATIENCE_S) == status
    assert (b"Nothing was run." in shown) is (typed == b"\x04")
    assert b"\x1b" not in shown and b"\x9b" not in shown and b"s0__echo" in shown
    os.close(ours)


@requirement("shell:rules")
def test_secrets_in_arguments_reach_neither_the_log_nor_the_record(desk: Desk) -> None:
    set_rules(desk, {"env": {"A_TOKEN": "k3y-of-the-server"}}, record="shape", log_level="debug")
    given = b'{"key": "k3y-of-the-server", "note": "v3ry-private"}'
    assert run_call(desk, "s0__echo", "-", given=given).returncode == 0
    kept = [*desk.sockets.glob("*"), *desk.folder.glob("store.sqlite3*")]
    files = {each: each.read_bytes() for each in kept if each.is_file()}
    assert any(each.name == "serve.log" for each in files)
    assert [each.name for each, data in files.items() if b"v3ry-private" in data or b"k3y-of-the-server" in data] == []


@requirement("shell:call")
def test_the_skill_names_both_commands(desk: Desk) -> None:
    printed = run_call(desk, "--skill").stdout.decode()
    assert printed.startswith("---\nname: foretool\ndescription: ")
    assert "foretool search" in printed and "foretool call" in printed
