"""Real processes over real pipes: what is killed, floods, sleeps or is missing, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from requirements import requirement
from served import Served, is_alive, wait_until, write_config

pytestmark = pytest.mark.slow

UPSTREAM = str(Path(__file__).parents[1] / "support" / "unruly_upstream.py")


def unruly(*options: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [UPSTREAM, *options]}


def pids(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


STUBBORN = {
    "plain": (),
    "stubborn": ("--stubborn",),
    "stubborn, with a helper behind a shell": ("--stubborn", "--helper"),
}


@requirement("process:kill-9")
def test_after_kill_9_in_mid_traffic_every_answered_call_is_in_the_store_and_no_child_is_left(
    tmp_path: Path, servings: list[Served]
) -> None:
    left = tmp_path / "pids"
    config = write_config(tmp_path, {"u": unruly("--pids", str(left), "--stubborn", "--helper")}, record="full")
    served = Served(config)
    servings.append(served)
    served.initialize()
    served.list_tools()
    for number in range(400):
        served.post("tools/call", {"name": "u__echo", "arguments": {"n": number}})
    answered: list[int] = []
    while len(answered) < 150:
        message = served.next()
        if "result" in message:
            answered.append(json.loads(message["result"]["content"][0]["text"])["n"])
    served.kill()
    while True:
        try:
            answered.append(json.loads(served.next()["result"]["content"][0]["text"])["n"])
        except EOFError:
            break
    store = sqlite3.connect(tmp_path / "store.sqlite3")
    kept = [json.loads(arguments)["n"] for (arguments,) in store.execute("SELECT arguments FROM calls")]
    assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store.close()
    assert set(answered) <= set(kept)
    assert len(kept) == len(set(kept))
    assert len(pids(left)) == 3
    assert wait_until(lambda: not any(map(is_alive, pids(left))))


@requirement("process:no-orphans")
@pytest.mark.parametrize("options", STUBBORN.values(), ids=STUBBORN)
@pytest.mark.parametrize("end", ["leave", "SIGTERM", "SIGKILL"])
def test_however_the_proxy_ends_no_child_is_left(
    tmp_path: Path, servings: list[Served], options: tuple[str, ...], end: str
) -> None:
    left = tmp_path / "pids"
    through_a_shell = " ".join([sys.executable, UPSTREAM, "--pids", str(left), *options])
    servers = {
        "u": unruly("--pids", str(left), *options),
        "shell": {"command": "/bin/sh", "args": ["-c", f"{through_a_shell}; true"]},
    }
    served = Served(write_config(tmp_path, servers))
    servings.append(served)
    served.initialize()
    served.list_tools()
    assert served.call("shell__echo", {"a": 1}) == '{"a": 1}'
    if end == "leave":
        assert served.leave() == 0
    elif end == "SIGTERM":
        served.process.send_signal(signal.SIGTERM)
        assert served.ended() == 0
    else:
        served.kill()
    assert len(pids(left)) == (6 if "--helper" in options else 2)
    assert wait_until(lambda: not any(map(is_alive, pids(left))))


@requirement("process:client-killed")
def test_after_kill_9_of_the_client_the_proxy_and_its_children_end(tmp_path: Path) -> None:
    left = tmp_path / "pids"
    config = write_config(tmp_path, {"u": unruly("--pids", str(left), "--stubborn")})
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    client_code = (
        "import json, subprocess, sys, time\n"
        f"proxy = subprocess.Popen([sys.executable, '-m', 'foretool', 'serve', '--config', {str(config)!r}],"
        " stdin=-1, stdout=-1)\n"
        f"for message in {messages!r}:\n"
        "    proxy.stdin.write(json.dumps(message).encode() + b'\\n')\n"
        "proxy.stdin.flush()\n"
        "proxy.stdout.readline(), proxy.stdout.readline()\n"
        "print(proxy.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    client = subprocess.Popen([sys.executable, "-c", client_code], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    proxy = int(client.stdout.readline())
    (child,) = pids(left)
    client.kill()
    client.wait()
    client.stdout.close()
    assert wait_until(lambda: not is_alive(proxy) and not is_alive(child))


@requirement("process:upstream-killed")
def test_an_upstream_killed_in_mid_call_fails_that_call_at_once_and_the_next_one_works(
    tmp_path: Path, servings: list[Served]
) -> None:
    left = tmp_path / "pids"
    served = Served(write_config(tmp_path, {"bad": unruly("--pids", str(left)), "good": unruly()}))
    servings.append(served)
    served.initialize()
    served.list_tools()
    hanging = served.post("tools/call", {"name": "bad__hang", "arguments": {}})
    assert served.call("good__echo", {"a": 1}) == '{"a": 1}'
    assert wait_until(lambda: len(pids(left)) == 1)
    os.kill(pids(left)[0], signal.SIGKILL)
    result = served.reply(hanging)["result"]
    assert result["isError"] is True
    assert "'bad'" in result["content"][0]["text"]
    assert "SIGKILL" in result["content"][0]["text"]
    assert "it had been sent" in result["content"][0]["text"]
    assert served.call("bad__echo", {"a": 2}) == '{"a": 2}'
    assert served.leave() == 0


@requirement("process:slow-start")
def test_an_upstream_that_sleeps_for_two_minutes_delays_nobody(tmp_path: Path, servings: list[Served]) -> None:
    servers = {"good": unruly(), "asleep": unruly("--sleep", "120")}
    served = Served(write_config(tmp_path, servers, policy="full", cold_list_s=1.0))
    servings.append(served)
    served.initialize()
    assert "good__echo" in served.list_tools()
    assert served.call("good__echo", {}) == "{}"
    # The second time the good one is known; only the one that never listed is waited for.
    assert served.leave() == 0


@requirement("process:garbage")
def test_garbage_and_floods_on_stdout_are_skipped_and_counted(tmp_path: Path, servings: list[Served]) -> None:
    enough = tmp_path / "enough"
    servers = {"bad": unruly("--garbage", "200", "--flood", str(enough)), "good": unruly()}
    served = Served(write_config(tmp_path, servers))
    servings.append(served)
    served.initialize()
    served.list_tools()
    flood = served.post("tools/call", {"name": "bad__flood", "arguments": {"n": 1}})
    assert served.call("good__echo", {"a": 1}) == '{"a": 1}', "during the flood"
    enough.touch()
    assert served.reply(flood)["result"]["content"][0]["text"] == '{"n": 1}'
    assert served.call("bad__echo", {"a": 2}) == '{"a": 2}'

    def skipped() -> int:
        store = sqlite3.connect(tmp_path / "store.sqlite3")
        try:
            row = store.execute("SELECT skipped_lines FROM upstream_states WHERE upstream = 'bad'").fetchone()
        finally:
            store.close()
        return row[0] if row else 0

    assert wait_until(lambda: skipped() >= 400)
    assert served.leave() == 0


BAD = {
    "exits at once": (unruly("--exit"), "UNRULY_TOKEN is not set"),
    "bad list": (unruly("--bad-list"), "tools could not be listed"),
    "missing program": ({"command": "no-such-program-at-all"}, "no-such-program-at-all"),
    "missing folder": ({**unruly(), "cwd": "/no/such/folder"}, "is not a folder"),
}


@requirement("process:bad-upstream")
@pytest.mark.parametrize(("bad", "reason"), BAD.values(), ids=BAD)
def test_a_bad_upstream_says_why_and_the_good_one_works(
    tmp_path: Path, servings: list[Served], bad: dict[str, Any], reason: str
) -> None:
    served = Served(write_config(tmp_path, {"bad": bad, "good": unruly()}, policy="full"))
    servings.append(served)
    served.initialize()
    assert "good__echo" in served.list_tools()
    assert served.call("good__echo", {"a": 1}) == '{"a": 1}'
    answer = served.call("bad__echo")
    assert "'bad'" in answer
    assert reason in answer
    assert served.leave() == 0
    assert any("bad" in line and reason in line for line in served.errors)


@requirement("process:stdout")
def test_nothing_but_protocol_is_written_to_stdout(tmp_path: Path, servings: list[Served]) -> None:
    served = Served(write_config(tmp_path, {"bad": unruly("--garbage", "5"), "exits": unruly("--exit")}))
    servings.append(served)
    assert served.process.stdin is not None
    served.process.stdin.write(b"this is no protocol either\n\n")
    served.initialize()
    served.list_tools()
    served.call("bad__echo")
    assert served.leave() == 0
    assert len(served.lines) >= 4
    for line in served.lines:
        assert json.loads(line)["jsonrpc"] == "2.0"
        assert line.endswith(b"}\n")


@requirement("process:pipe")
def test_requests_piped_in_and_an_input_that_ends_are_answered_all_the_same(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"u": unruly()})
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "id": 2, "method": "ping"},
    ]
    done = subprocess.run(
        [sys.executable, "-m", "foretool", "serve", "--config", str(config)],
        input="".join(json.dumps(message) + "\n" for message in messages),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]


@requirement("process:restart")
def test_a_restart_lists_at_once_what_a_sleeping_upstream_had(tmp_path: Path, servings: list[Served]) -> None:
    config = write_config(tmp_path, {"u": {**unruly(), "inherit": ["PYTHONPATH"]}}, policy="full", cold_list_s=60)
    first = Served(config)
    servings.append(first)
    first.initialize()
    listed = first.ask("tools/list")
    assert first.leave() == 0
    # The same command, as far as the config tells, now takes two minutes to come up.
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(
        "import sys, time\nif 'unruly' in ' '.join(sys.orig_argv): time.sleep(120)\n"
    )
    os.environ["PYTHONPATH"] = str(slow)
    try:
        second = Served(config)
    finally:
        del os.environ["PYTHONPATH"]
    servings.append(second)
    second.initialize()
    assert second.ask("tools/list") == listed
