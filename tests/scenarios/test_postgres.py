"""Records in PostgreSQL: every command over a real server, real proxies, and a server that is restarted under them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_fakes import ECHO, fill, write_config
from postgres import PASSWORD, SKIPPED, lay_ranks_of, new_schema, start_server, stop_server, with_password
from requirements import requirement
from served import Served, wait_until

from foretool.server.commands.group import run
from foretool.storage.opening import open_store
from foretool.storage.records import Call

pytest.importorskip("psycopg")


@pytest.fixture
def address() -> str:
    return with_password(new_schema() or pytest.skip(SKIPPED))


@pytest.fixture
def config(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    return write_config(tmp_path, storage=address)


COMMANDS: dict[str, tuple[str, int]] = {
    "": ("2 servers, 3 tools", 0),
    "status": ("1 call, 1 search, 1 miss", 0),
    "status --json": ('"calls": 1', 0),
    "misses": ("sky__forecast", 0),
    "misses 1": ("weather in Paris", 0),
    "misses 1 --fix": ("sky__forecast", 0),
    "tools": ("sky__moon", 0),
    "list": ("calc", 0),
    "search weather": ("sky__forecast", 0),
    "search sky__forecast --tool sky__forecast": ("listed", 0),
    "status --stats --since 3000000d": ("cursor", 0),
    "status --clients": ("", 0),
    "tools --needs": ("", 0),
    "misses --confused": ("", 0),
    "review": ("", 0),
    "replay --since 3000000d": ("", 0),
    "enrich --show": ("No wordings", 0),
    "learn": ("ports", 0),
    "learn --report": ("", 0),
    "learn --rollback": ("nothing to roll back", 0),
    "export calls": ('"tool":"sky__forecast"', 0),
    "forget --tool sky__forecast --dry-run": ("calls", 0),
    "forget --all --yes": ("write-ahead log", 0),
    "forget --compact": ("vacuumed", 0),
    "uninstall --dry-run": ("what foretool recorded and learned", 0),
}


@pytest.mark.slow
@requirement("storage:postgres")
@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_works_with_a_database_and_shows_no_password(
    config: Path, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(config).close()
    monkeypatch.setenv("FORETOOL_CONFIG", str(config))
    says, status = COMMANDS[line]
    found = run(line.split())
    out, err = capsys.readouterr()
    assert (found, says in out + err) == (status, True), out + err
    assert PASSWORD not in out + err and "Traceback" not in err


@pytest.mark.parametrize("line", ["status", "misses", "forget --all --yes", "learn", "export calls"])
def test_a_command_with_a_server_that_is_away_says_what_to_do(
    tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(tmp_path, storage=f"postgresql://me:{PASSWORD}@127.0.0.1:1/none")
    monkeypatch.setenv("FORETOOL_CONFIG", str(config))
    assert run(line.split()) == 1
    out, err = capsys.readouterr()
    assert "postgresql://me@127.0.0.1:1/none: " in out + err and "check that the server runs" in out + err
    assert PASSWORD not in out + err and "Traceback" not in err


def serve(config: Path, home: Path) -> Served:
    environ = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    lay_ranks_of(json.loads(config.read_bytes())["foretool"]["storage"], home / "state" / "foretool")
    served = Served(config, "--alone", env=environ)
    served.initialize()
    return served


def echo_config(folder: Path, address: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return write_config(folder, {"e": {"command": sys.executable, "args": [str(ECHO)]}}, storage=address, record="full")


def numbers(address: str) -> list[int]:
    with open_store(address) as store:
        calls: list[Call] = store.calls.recent(-1)
    return sorted(json.loads(call.arguments)["text"] for call in calls)


@pytest.mark.slow
@requirement("storage:postgres")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
def test_a_server_that_is_restarted_under_two_proxies_loses_and_doubles_nothing_that_was_answered(
    address: str, tmp_path: Path, servings: list[Served], how: signal.Signals
) -> None:
    # The server of the tests commits without waiting for the disk, which a crash would show.
    address += "%20-c%20synchronous_commit%3Don"
    configs = [echo_config(tmp_path / name, address) for name in ("one", "two")]
    proxies = [serve(config, config.parent / "home") for config in configs]
    servings.extend(proxies)
    answered: list[Any] = []

    def call_all(begin: int, end: int) -> None:
        for number in range(begin, end):
            for place, proxy in enumerate(proxies):
                text = f"{place}:{number}"
                assert text in proxy.call("e__echo", {"text": text})
                answered.append(text)

    call_all(0, 30)
    stop_server(how)
    call_all(30, 60)  # back-pressure: calls go on, their records wait
    # The note that `status` and `doctor` of this machine read.
    assert wait_until(lambda: all(any((each.parent / "home").rglob("*.trouble")) for each in configs))
    start_server()
    call_all(60, 90)
    assert wait_until(lambda: len(numbers(address)) >= len(answered))
    assert wait_until(lambda: all("is in use again" in "\n".join(proxy.errors) for proxy in proxies))
    for proxy in proxies:
        assert proxy.leave() == 0
    assert numbers(address) == sorted(answered)
    errors = "\n".join(line for proxy in proxies for line in proxy.errors)
    assert "records are kept in memory" in errors and PASSWORD not in errors


@pytest.mark.slow
def test_two_proxies_of_two_homes_share_what_was_learned_and_one_leads(
    address: str, tmp_path: Path, servings: list[Served]
) -> None:
    configs = [echo_config(tmp_path / name, address) for name in ("one", "two")]
    proxies = [serve(config, config.parent / "home") for config in configs]
    servings.extend(proxies)
    for proxy in proxies:
        proxy.list_tools()
        proxy.call("e__echo", {"text": "hello"})
    with open_store(address) as store, open_store(address) as other:
        lead = store.lead("learning")
        assert lead.take()
        assert not other.lead("learning").take()
        assert wait_until(lambda: len(store.serving.states()) == 2)
        states = store.serving.states()
        assert {state.pid for state in states} == {proxy.process.pid for proxy in proxies}
        assert {state.machine for state in states} == {os.uname().nodename}
        assert len(store.calls.recent(-1)) == 2
        assert time.time() - min(state.seen_at for state in states) < 60
    for proxy in proxies:
        assert proxy.leave() == 0
