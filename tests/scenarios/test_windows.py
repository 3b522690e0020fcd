"""Windows that share one proxy: real processes over real pipes and a real socket."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from requirements import requirement
from served import Served, is_alive, wait_until
from windows import Desk

from foretool.server.config.loader import load
from foretool.server.local.places import ProxyIdentity, name_lock
from foretool.storage.opening import open_store

pytestmark = pytest.mark.slow


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


@requirement("windows:one-proxy")
def test_windows_share_one_proxy_and_one_process_of_each_server(desk: Desk) -> None:
    first, second = desk.opened(), desk.opened()
    assert first.call("s0__echo", {"n": 1}) == '{"n": 1}'
    assert second.call("s1__echo", {"n": 2}) == '{"n": 2}'
    assert len(desk.servers()) == 2
    (status,) = desk.status()
    assert [each["pid"] for each in status["windows"]] == [first.process.pid, second.process.pid]
    assert {each["client"] for each in status["windows"]} == {"test"}


@requirement("windows:one-proxy")
def test_status_shows_who_serves_and_which_windows_share_it(desk: Desk) -> None:
    windows = [desk.opened(), desk.opened()]

    def proxies() -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "foretool", "status", "--json", "--config", str(desk.config)],
            env={**os.environ, "FORETOOL_SOCKETS": str(desk.sockets)}, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        return json.loads(done.stdout)["proxies"]

    assert wait_until(lambda: bool(proxies()))  # a proxy writes the states of its servers behind its answers
    (proxy,) = proxies()
    assert proxy["pid"] == desk.proxy() and proxy["is_running"]
    shown = [(each["pid"], each["client"], each["folder"]) for each in proxy["windows"]]
    assert shown == [(each.process.pid, "test", os.path.realpath(desk.folder)) for each in windows]


@requirement("trust:windows:folder")
def test_status_and_doctor_say_which_servers_are_not_told_where_windows_work(desk: Desk, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    windows = [desk.open(cwd=folder) for folder in (desk.folder, elsewhere)]

    def told(command: str) -> str:
        line = [sys.executable, "-m", "foretool", command, "--config", str(desk.config)]
        env = {**os.environ, "FORETOOL_SOCKETS": str(desk.sockets)}
        done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=60, check=False)
        return " ".join(done.stdout.split())

    for window in windows:
        window.initialize(capabilities={"roots": {}})
        window.list_tools()
    assert wait_until(lambda: f"proxy {desk.proxy()}, up" in told("status"))
    assert "(roots)" not in told("status"), "no server has asked"
    assert "windows of several folders" in windows[0].call("s0__roots")
    said = "not told in which folders a client works (roots): s0, as windows of several folders share it;"
    assert said in told("status")
    assert said in told("doctor")
    windows[1].leave()
    assert wait_until(lambda: "(roots)" not in told("status"))


@requirement("windows:one-proxy")
def test_status_also_knows_a_proxy_whose_state_is_not_in_the_storage(desk: Desk) -> None:
    """As on a full disk, where neither the state nor a note beside the file can be written."""
    desk.opened()
    command = [sys.executable, "-m", "foretool", "status", "--config", str(desk.config)]
    env = {**os.environ, "FORETOOL_SOCKETS": str(desk.sockets)}

    def told(line: Sequence[str] = command) -> str:
        return subprocess.run(line, env=env, capture_output=True, text=True, timeout=60, check=False).stdout

    assert wait_until(lambda: f"proxy {desk.proxy()}, up" in told())
    with closing(sqlite3.connect(load(desk.config).storage, timeout=60)) as database, database:
        database.execute("DELETE FROM upstream_states")
    said = " ".join(told().split())
    assert f"proxy {desk.proxy()} runs, and has written no state of its servers into the storage." in said
    assert "No proxy is running" not in said
    assert "1 proxy runs now." in told([*command[:3], *command[4:]])


@requirement("reload:broken")
@pytest.mark.parametrize("profile", ["", "work"])
def test_while_the_config_is_broken_every_command_says_who_serves_on_and_since_when(desk: Desk, profile: str) -> None:
    good = json.loads(desk.config.read_text())
    good["foretool"]["profiles"] = {"work": {}}
    desk.config.write_text(json.dumps(good))
    window = desk.opened(*(("--profile", profile) if profile else ()))

    def told(*line: str, **environ: str) -> tuple[int, str]:
        env = {**os.environ, "FORETOOL_SOCKETS": str(desk.sockets), **environ}
        words = [sys.executable, "-m", "foretool", *line, "--config", str(desk.config)]
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, " ".join(f"{done.stdout} {done.stderr}".split())

    serves = re.compile(r"proxy \d+ still serves 1 client, for \d+ s with the config before this error; it takes")
    for broken in ('{"mcpServers": {{', json.dumps({**good, "foretool": {"list_tokens": "many"}})):
        desk.config.write_text(broken)
        assert wait_until(lambda: serves.search(told("status")[1]))
        for command in ((), ("list",), ("doctor",), ("tools",)):
            status, said = told(*command)
            assert status == 2 and serves.search(said), said
    assert window.call("s0__echo", {"n": 1}) == '{"n": 1}'
    # Here the variable is set, and where the proxy runs it is not.
    desk.config.write_text(json.dumps({**good, "foretool": {**good["foretool"], "encoder_key": "${SET_HERE}"}}))
    told_here = partial(told, SET_HERE="x")
    older = "serves with an older config for"
    assert wait_until(lambda: f"{older} " in told_here("status")[1] and "SET_HERE" in told_here("status")[1])
    assert told_here("status")[0] == 1 and older in told_here("doctor")[1]
    desk.config.write_text(json.dumps(good))
    assert wait_until(lambda: told("status")[0] == 0 and older not in told("status")[1])


@requirement("windows:one-proxy")
def test_of_ten_windows_that_start_at_the_same_moment_exactly_one_starts_a_proxy(desk: Desk) -> None:
    windows = [desk.open() for _ in range(10)]
    for window in windows:
        window.initialize()
    assert all(len(window.list_tools()) == len(windows[0].list_tools()) for window in windows)
    (status,) = desk.status()
    assert len(status["windows"]) == 10
    assert wait_until(lambda: len(desk.servers()) == 2)


@requirement("question:capability-each")
def test_a_window_that_can_be_asked_gets_the_tools_of_a_server_that_was_told_less(desk: Desk) -> None:
    """Commands start servers as for a client that can do everything, so more tools are known than the first window is
    shown: such a server is started again, also where the first window has called it."""
    command = [sys.executable, "-m", "foretool", "doctor", "--config", str(desk.config)]
    subprocess.run(command, capture_output=True, timeout=60, check=False)
    first, second = desk.opened(), desk.open()
    assert first.call("s0__echo", {"n": 1}) == '{"n": 1}'
    assert wait_until(lambda: "s0__ask" not in first.list_tools())
    second.initialize("other", {"elicitation": {}})
    assert wait_until(lambda: "s0__ask" in second.list_tools())
    assert second.call("s0__ask", {"n": 2}) == '{"n": 2}' and first.call("s0__echo", {"n": 3}) == '{"n": 3}'
    (process,) = desk.servers()
    third = desk.open()
    third.initialize("third", {"elicitation": {}})
    assert "s0__ask" in third.list_tools() and desk.servers() == [process]


@requirement("windows:end")
def test_the_last_window_ends_the_proxy_and_its_servers_and_leaves_no_socket(desk: Desk) -> None:
    first, second = desk.opened(), desk.opened()
    proxy, servers = desk.proxy(), desk.servers()
    assert first.leave() == 0
    assert is_alive(proxy) and second.call("s0__echo", {"n": 1}) == '{"n": 1}'
    assert second.leave() == 0
    assert wait_until(lambda: not any(map(is_alive, [proxy, *servers])))
    assert list(desk.sockets.glob("*.sock")) == []


@requirement("windows:end")
def test_the_proxy_lingers_for_the_next_window(tmp_path: Path) -> None:
    desk = Desk(tmp_path, linger_s=60)
    try:
        assert desk.opened().leave() == 0
        proxy, servers = desk.proxy(), desk.servers()
        assert desk.opened().call("s0__echo", {"n": 1}) == '{"n": 1}'
        assert desk.proxy() == proxy and desk.servers() == servers
    finally:
        desk.close()


@requirement("windows:no-harm")
def test_kill_9_of_the_first_window_and_its_process_group_harms_no_other(desk: Desk) -> None:
    first, second = desk.opened(), desk.opened()
    proxy = desk.proxy()
    os.killpg(first.process.pid, signal.SIGKILL)
    first.ended()
    assert second.call("s0__echo", {"n": 1}) == '{"n": 1}'
    assert desk.proxy() == proxy


@requirement("windows:failover")
def test_kill_9_of_the_proxy_answers_calls_in_flight_with_an_error_and_windows_go_on(desk: Desk) -> None:
    windows = [desk.opened() for _ in range(3)]
    proxy = desk.proxy()
    hanging = windows[0].post("tools/call", {"name": "s0__hang", "arguments": {}})
    assert windows[1].call("s1__echo", {"n": 1}) == '{"n": 1}'
    os.kill(proxy, signal.SIGKILL)
    error = windows[0].reply(hanging)["error"]
    assert error["code"] == -32603 and "\n" not in error["message"]
    assert "the proxy that this window shares has ended" in error["message"]
    for number, window in enumerate(windows):
        assert window.call("s1__echo", {"n": number}) == f'{{"n": {number}}}'
    (status,) = desk.status()
    assert status["pid"] != proxy and len(status["windows"]) == 3
    # Replayed greetings are not answered twice.
    assert all(sum("serverInfo" in each.get("result", {}) for each in window.seen) == 1 for window in windows)


@requirement("windows:drained")
def test_on_sigterm_a_call_that_is_answered_soon_is_no_error_and_windows_go_on(desk: Desk) -> None:
    first, second = desk.opened(), desk.opened()
    before, ident = desk.proxy(), first.post("tools/call", {"name": "s0__hang", "arguments": {"s": 0.7}})
    assert second.call("s1__echo", {"n": 1}) == '{"n": 1}'
    os.kill(before, signal.SIGTERM)
    assert second.call("s1__echo", {"n": 2}) == '{"n": 2}'
    assert first.reply(ident)["result"]["content"][0]["text"] == '{"s": 0.7}'
    assert wait_until(lambda: not is_alive(before))
    assert first.call("s1__echo", {"n": 3}) == '{"n": 3}'


ENDINGS = [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP]


def ledger(desk: Desk) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the misses, the calls and the sessions on record."""
    with open_store(load(desk.config).storage) as store:
        return store.calls.misses(), store.calls.recent(100), store.sessions.recent()


def replace_proxy(desk: Desk, ending: signal.Signals) -> None:
    proxy = desk.proxy()
    os.kill(proxy, ending)
    assert wait_until(lambda: [each for each in desk.status() if each["pid"] != proxy and each["windows"]])


@requirement("windows:failover", "miss:listed-is-none")
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda each: each.name)
def test_what_the_list_defines_or_names_is_no_miss_at_the_next_proxy(tmp_path: Path, ending: signal.Signals) -> None:
    settings = {"policy": "frozen", "list_names": True, "list_tokens": 1000, "pin": ["s0__echo"]}
    desk = Desk(tmp_path, **settings)
    config = json.loads(desk.config.read_text())
    config["mcpServers"]["s1"]["tools"] = {"echo": {"description": "Says again what it is told. " * 150}}
    desk.config.write_text(json.dumps(config))
    try:
        before = desk.opened()
        before.call("call_tool_write", {"name": "s1__echo"})
        assert before.leave() == 0 and wait_until(lambda: not list(desk.sockets.glob("*.sock")))
        window = desk.open()
        window.initialize()
        tools = {each["name"]: each.get("description") for each in window.ask("tools/list")["tools"]}
        assert "s0__echo" in tools and "s1__echo" not in tools and "s1__echo" in tools["call_tool_write"]
        for times in range(2):
            replace_proxy(desk, ending)
            assert window.call("s0__echo", {"n": times}) == f'{{"n": {times}}}'
            assert window.call("call_tool_write", {"name": "s1__echo", "arguments": {"n": 1}}) == '{"n": 1}'
        misses, calls, sessions = ledger(desk)
        assert [
            each.tool for each in misses if each.session == sessions[0].key and each.noticed != "unknown_name"
        ] == []
        own = [each for each in calls if each.tool == "s0__echo"]
        assert len(sessions) == 2 and sessions[0].ended_at is None
        assert {(each.session, each.hidden) for each in own} == {(sessions[0].key, False)}
    finally:
        desk.close()


@requirement("windows:failover")
@pytest.mark.parametrize("ending", ENDINGS[1:], ids=lambda each: each.name)
@pytest.mark.parametrize("alone", [[], ["--alone"]], ids=["shared", "alone"])
def test_a_call_that_is_open_when_the_proxy_is_ended_has_failed(
    desk: Desk, ending: signal.Signals, alone: list[str]
) -> None:
    window = desk.opened(*alone)
    hanging = window.post("tools/call", {"name": "s0__hang", "arguments": {}})
    assert window.call("s1__echo", {"n": 1}) == '{"n": 1}'
    if alone:
        os.kill(window.process.pid, ending)
        window.ended()
    else:
        replace_proxy(desk, ending)
        assert "has ended" in window.reply(hanging)["error"]["message"]
    assert wait_until(lambda: [each.outcome for each in ledger(desk)[1] if each.tool == "s0__hang"] == ["lost"])


@requirement("windows:failover", "miss:exposure")
def test_a_tool_that_the_list_lacks_is_missed_once_however_many_proxies_serve(tmp_path: Path) -> None:
    desk = Desk(tmp_path, policy="frozen", list_tokens=1000)
    try:
        window = desk.opened()
        for _ in range(2):
            window.call("call_tool_write", {"name": "s1__echo"})
            replace_proxy(desk, signal.SIGKILL)
        window.call("call_tool_write", {"name": "s0__echo"})
        misses, *_ = ledger(desk)
        assert [each.tool for each in misses] == ["s0__echo", "s1__echo"]
        assert {each.cause for each in misses} <= {"budget", "rank", "stale"} and {
            each.exposure for each in misses
        } == {1}
    finally:
        desk.close()


@requirement("windows:failover")
def test_a_conversation_that_begins_in_the_same_window_is_another_session(desk: Desk) -> None:
    window = desk.opened()
    replace_proxy(desk, signal.SIGKILL)
    assert window.call("s0__echo", {"n": 1}) == '{"n": 1}'
    window.initialize()
    assert len({each.key for each in ledger(desk)[2]}) == 2


@requirement("windows:failover", "miss:exposure")
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda each: each.name)
def test_what_was_found_before_the_proxy_ended_is_one_miss_with_its_search(
    tmp_path: Path, ending: signal.Signals
) -> None:
    desk = Desk(tmp_path, policy="frozen", list_tokens=1000)
    try:
        window = desk.opened()
        assert "s1__echo" in window.call("discover_tools", {"task": "say again what s1 is told, with its echo tool"})
        for _ in range(2):
            replace_proxy(desk, ending)
            window.call("call_tool_write", {"name": "s1__echo"})
        miss, *others = ledger(desk)[0]
        assert others == [] and (miss.tool, miss.noticed, miss.recovered) == ("s1__echo", "discovery", "discovered")
        assert miss.turns == 1 and miss.tokens > 0 and "say again" in miss.query
    finally:
        desk.close()


@requirement("windows:failover")
def test_the_conversation_that_a_window_began_last_is_the_one_that_goes_on(desk: Desk) -> None:
    window = desk.opened()
    window.call("s0__echo", {"n": 1})
    window.initialize(name="another")
    window.ask("tools/list")
    window.call("s0__echo", {"n": 2})
    replace_proxy(desk, signal.SIGKILL)
    window.call("s0__echo", {"n": 3})
    calls = sorted(ledger(desk)[1], key=lambda each: each.at)
    assert len({each.session for each in calls[1:]}) == 1 and calls[0].session != calls[1].session


@requirement("windows:failover")
def test_a_client_of_the_modern_era_goes_on_too(desk: Desk) -> None:
    window = desk.open()
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    }
    assert "tools" in window.ask("tools/list", {"_meta": meta})
    os.kill(desk.proxy(), signal.SIGKILL)
    assert "tools" in window.ask("tools/list", {"_meta": meta})


@requirement("windows:off")
def test_a_window_that_is_to_be_alone_shares_nothing(desk: Desk) -> None:
    desk.opened()
    alone = desk.opened("--alone")
    assert alone.call("s0__echo", {"n": 1}) == '{"n": 1}'
    assert len(desk.servers()) == 3
    (status,) = desk.status()
    assert alone.process.pid not in [each["pid"] for each in status["windows"]]


@requirement("windows:off")
def test_with_share_off_every_window_has_its_own_proxy(tmp_path: Path) -> None:
    desk = Desk(tmp_path, share=False)
    try:
        first, second = desk.opened(), desk.opened()
        assert second.call("s0__echo", {"n": 1}) == '{"n": 1}'
        assert desk.status() == [] and len(desk.servers()) == 3
        assert first.leave() == 0 == second.leave()
        assert desk.servers() == []
    finally:
        desk.close()


@requirement("windows:one-proxy")
def test_a_window_that_opens_after_an_edit_gets_what_the_file_says(desk: Desk) -> None:
    first = desk.opened()
    for text in ("one", "two", "three"):
        config = json.loads(desk.config.read_text())
        config["mcpServers"]["s0"]["tools"] = {"echo": {"name": f"echo_{text}"}}
        desk.config.write_text(json.dumps(config))
        window = desk.opened()
        assert window.call(f"s0__echo_{text}", {"n": 1}) == '{"n": 1}'
        assert window.leave() == 0
    assert len(desk.status()) == 1
    assert first.call("s1__echo", {"n": 2}) == '{"n": 2}'


@requirement("windows:opening")
def test_a_window_greets_as_the_last_one_did_while_no_proxy_answers(desk: Desk) -> None:
    first = desk.open()
    assert "s0__echo" in first.list_tools()  # so the proxy's own answer is kept, whoever gave the first one
    second = desk.open()
    greeting = second.initialize()
    assert first.leave() == 0 == second.leave()
    assert wait_until(lambda: not list(desk.sockets.glob("*.sock")))
    (lock,) = desk.sockets.glob("*.lock")
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as another window does that is starting a proxy
        third = desk.open()
        assert third.initialize() == greeting
        assert desk.status() == []
    assert "s0__echo" in third.list_tools()
    assert sum("serverInfo" in each.get("result", {}) for each in third.seen) == 1


@requirement("windows:opening")
def test_a_client_that_nobody_knows_is_greeted_while_no_proxy_answers(desk: Desk) -> None:
    wanted = ProxyIdentity(os.path.realpath(desk.config), "", "")
    desk.sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (desk.sockets / name_lock(wanted)).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as another window does that is starting a proxy
        first = desk.open()
        greeting = first.initialize()
        assert desk.status() == []
    assert "s0__echo" in first.list_tools()
    assert sum("serverInfo" in each.get("result", {}) for each in first.seen) == 1
    assert first.leave() == 0
    told = desk.open().initialize()  # what the proxy answered to the same line
    told["capabilities"].pop("extensions", None)  # skills, where this machine has some
    assert {**greeting["capabilities"], **told["capabilities"]} == greeting["capabilities"]
    assert {**told, "capabilities": {}, "instructions": ""} == {**greeting, "capabilities": {}, "instructions": ""}


@requirement("windows:opening", "windows:off")
def test_a_window_of_its_own_greets_as_the_last_one_did_and_says_it_once(desk: Desk) -> None:
    kept: list[Any] = []
    for _ in range(2):
        window = desk.open("--alone")
        greeting = window.initialize()
        assert window.call("s0__echo", {"n": 1}) == '{"n": 1}'
        assert sum("serverInfo" in each.get("result", {}) for each in window.seen) == 1
        assert window.leave() == 0
        assert greeting in kept or not kept
        (file,) = desk.sockets.glob("*.answer")
        kept.append(json.loads(file.read_bytes().split(b"\n", 2)[2])["result"])


@requirement("windows:errors")
def test_what_is_wrong_with_the_config_ends_the_window_with_its_line(desk: Desk) -> None:
    desk.config.write_text('{"mcpServers": {"a": }}')
    window = desk.open()
    assert window.ended() == 2
    assert re.match(r"foretool: .*mcp\.json:1:22: expected a value", window.errors[0])


@requirement("windows:isolation")
def test_no_window_sees_or_cancels_the_requests_of_another(desk: Desk) -> None:
    first, second = desk.opened(), desk.opened()
    hanging = first.post("tools/call", {"name": "s0__hang", "arguments": {}})
    second.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": hanging}})
    # Both have given this id; the answer of the one is not that of the other.
    assert second.call("s1__echo", {"mine": 2}) == '{"mine": 2}'
    assert first.call("s1__echo", {"mine": 1}) == '{"mine": 1}'
    assert all(each.get("id") != hanging for each in first.seen)
    first.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": hanging}})
    assert first.call("s1__echo", {"still": 1}) == '{"still": 1}'


@requirement("windows:one-proxy")
@pytest.mark.parametrize("arguments", [(), ("--alone",)])
def test_a_client_that_has_closed_our_stderr_is_served(arguments: tuple[str, ...], desk: Desk) -> None:
    program = desk.folder / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@" 2>&-\n')
    program.chmod(0o700)
    environ = {**os.environ, "FORETOOL_SOCKETS": str(desk.sockets)}
    window = Served(desk.config, *arguments, python=program, cwd=desk.folder, env=environ)
    desk.windows.append(window)
    window.initialize()
    assert "s0__echo" in window.list_tools()
    assert window.call("s0__echo", {"n": 1}) == '{"n": 1}'
