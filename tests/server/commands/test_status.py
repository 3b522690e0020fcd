"""`foretool status`: live and dead proxies, what is stored, what is wrong with the config."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_fakes import CALC, WEATHER, fill, write_config
from requirements import requirement

from foretool.server.commands.group import run
from foretool.server.config import loader
from foretool.storage.opening import open_store
from foretool.storage.records import (
    SHELL_CLIENT,
    Call,
    Definition,
    Discovery,
    Match,
    SessionRecord,
    ToolId,
    UpstreamState,
)
from foretool.storage.steps import finish


def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


def state(upstream: str, pid: int, **more: object) -> UpstreamState:
    given = {
        "pid": pid, "started_at": time.time(), "upstream": upstream, "state": "ready", "since": time.time() - 90,
        "era": "legacy", "tools": 3, "restarts": 1, "skipped_lines": 7, "last_error": "", "stderr": (),
    }  # fmt: skip
    return UpstreamState(**{**given, **more})  # type: ignore[arg-type]


def test_before_the_first_run_it_says_that_nothing_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--config", str(write_config(tmp_path))]) == 0
    out = capsys.readouterr().out
    assert "No proxy is running, and no client" in out
    assert f"{tmp_path / 'foretool.sqlite3'}: does not exist yet" in out


def test_a_running_proxy_shows_each_upstream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    with fill(path) as store:
        store.serving.save_state(state("calc", os.getpid(), stderr=("calc is listening",)))
    assert run(["status", "--verbose", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"proxy {os.getpid()}, up " in out
    assert [line.split() for line in out.splitlines() if line.startswith("  calc ")] == [
        ["calc", "running", "2", "min", "legacy", "3", "1", "7"],
        ["calc", "stderr:", "calc", "is", "listening"],
    ]
    assert "3 tools, 1 session, 1 call, 1 search, 1 miss, 1 client (all on record)" in out
    assert "record: shape; last call " in out


def test_an_upstream_that_is_down_makes_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    with open_store(tmp_path / "foretool.sqlite3") as store:
        error = "exited with code 1; last stderr line: 'no token'"
        store.serving.save_state(
            state("sky", os.getpid(), state="retrying", last_error=error, stderr=("one", "no token"))
        )
    assert run(["status", "--config", str(path)]) == 1
    out = capsys.readouterr().out
    assert error in out and "sky stderr: no token" in out


def test_so_does_one_whose_tools_could_not_be_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    with open_store(tmp_path / "foretool.sqlite3") as store:
        error = "its tools could not be listed: answered tools/list with error -32000: log in first"
        store.serving.save_state(state("sky", os.getpid(), state="unlisted", last_error=error))
    assert run(["status", "--config", str(path)]) == 1
    out = capsys.readouterr().out
    assert "running, tools unknown" in out and error in out


def test_a_server_that_failed_last_is_named_while_no_proxy_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, {"sky": {"command": sys.executable, "args": ["-c", "raise SystemExit('no key')"]}})
    assert run(["doctor", "--config", str(path)]) == 1
    capsys.readouterr()
    assert run(["status", "--config", str(path)]) == 1
    out = capsys.readouterr().out
    assert "failing   sky: " in out and "no key" in out
    # What was known of another entry says nothing of this one.
    write_config(tmp_path, {"sky": {"command": sys.executable, "args": ["-c", "raise SystemExit('other key')"]}})
    assert run(["status", "--config", str(path)]) == 0
    assert "sky" not in capsys.readouterr().out


def test_a_killed_proxy_is_marked_as_dead_and_is_nothing_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, pid = write_config(tmp_path), dead_pid()
    with open_store(tmp_path / "foretool.sqlite3") as store:
        store.serving.save_state(state("sky", pid, state="retrying"))
    assert run(["status", "--config", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(proxy["pid"], proxy["is_running"]) for proxy in told["proxies"]] == [(pid, False)]
    assert told["is_well"] is True
    assert run(["status", "--config", str(path)]) == 0
    assert f"proxy {pid}, dead" in capsys.readouterr().out


def test_broken_and_disabled_servers_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, {"good": {"command": "x"}, "bad": {"command": 3}, "off": {"disabled": True}})
    assert run(["status", "--config", str(path)]) == 1
    out = capsys.readouterr().out
    assert f"wrong     bad: {path}:1:" in out and "disabled  off" in out


@requirement("gate:recorded")
def test_it_says_whether_the_confidence_of_answers_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    with fill(path) as store:
        for at in range(60):
            matches = (Match(CALC, 1, 1.0), Match(WEATHER, 2, 0.5))
            found = Discovery("s", float(at), "t", (), None, "high", matches, 1, 1.0, handle=str(at), probability=0.95)
            id = store.discoveries.add(found)
            tool = WEATHER if at % 2 else CALC
            store.calls.record([Call("s", at + 0.1, tool, "u", "bridge", True, "ok", 1.0, True, "", id)])
    assert run(["status", "--config", str(path)]) == 0
    quality = "Search quality (61 searches with a known outcome): right tool in the top 5: 100%."
    assert quality in capsys.readouterr().out.splitlines()
    assert run(["status", "--verbose", "--config", str(path)]) == 0
    line = next(each for each in capsys.readouterr().out.splitlines() if each.startswith("Search quality"))
    assert line.startswith(f"{quality} What answers promise differs from what comes true by 5% on average")
    assert line.endswith(". The first 2 should contain 90% of needed tools and contained 100%.")


def test_what_waits_for_the_user_is_shown_and_is_nothing_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path)
    with open_store(loader.load(path).storage) as store:
        finish(store.approvals.hold("calc", ["tool"], [Definition("calc", "tool", "add", "h", b"{}")]))
    assert run(["status", "--config", str(path)]) == 0
    assert "held      calc: 1 tool new; nobody has approved this" in capsys.readouterr().out
    assert run(["status", "--json", "--config", str(path)]) == 0
    assert "foretool review calc" in json.loads(capsys.readouterr().out)["held"]["calc"]


@pytest.mark.parametrize(
    ("telemetry", "said"),
    [("off", ""), ("on", "names, durations and codes of errors"), ("full", "what calls are given and return")],
)
def test_it_says_what_leaves_the_machine_for_a_collector(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], telemetry: str, said: str
) -> None:
    path = write_config(tmp_path, telemetry=telemetry)
    assert run(["status", "--config", str(path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (said in shown) if said else ("telemetry" not in shown)
    assert run(["status", "--json", "--config", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["telemetry"] == telemetry


def test_of_a_storage_file_that_cannot_be_read_it_says_no_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path)
    assert run(["status", "--config", str(config)]) == 0
    assert "last call never" in capsys.readouterr().out
    (tmp_path / "foretool.sqlite3").write_text("no database", encoding="utf-8")
    run(["status", "--config", str(config)])
    said = capsys.readouterr().out
    assert "not a readable SQLite file" in " ".join(said.split())
    assert "record: shape" in said and "never" not in said and "embedded" not in said


def test_calls_of_foretool_call_are_told_apart_in_the_same_number_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, now = write_config(tmp_path), time.time()
    with fill(path) as store:
        for key, client, version in (("a", "cursor", "1.3"), ("b", SHELL_CLIENT, "1"), ("c", SHELL_CLIENT, "1")):
            store.sessions.begin(SessionRecord(key, client, version, "legacy", "stdio", "", now))
            store.calls.record([Call(key, now, ToolId("calc__add"), "calc", "name", False, "ok", 1.0, True, "")])
    assert run(["status", "--config", str(path)]) == 0
    assert "2 calls and 2 by foretool call, 1 search, 1 miss, 1 client (all on record)" in told(capsys)
    assert run(["status", "--json", "--config", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["shell_calls"] == 2
    assert run(["status", "--stats", "--since", "90000d", "--config", str(path)]) == 0
    assert "in all: 2 tasks, 2 calls, 1 miss" in told(capsys)


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())
