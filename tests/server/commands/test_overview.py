"""`foretool` alone says how things stand and what to do next."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from command_fakes import fill, write_config

from foretool.server.commands.group import run
from foretool.server.commands.list import Overview, next_step
from foretool.server.ledger.conditions import ListedServer
from foretool.server.recording.notes import JobsNote, write_note
from foretool.server.recording.store_watch import TroubleNote
from foretool.server.transports.guard import FailingJob
from foretool.storage.opening import open_store
from foretool.storage.records import MissCount, UpstreamState

FORECAST = MissCount("sky__forecast", "rank", 3, 3, 3, 90, 1.0, 7)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = write_config(tmp_path)
    monkeypatch.setenv("FORETOOL_CONFIG", str(path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    cursor = tmp_path / "home/.cursor/mcp.json"
    cursor.parent.mkdir(parents=True)
    entry = {"command": "foretool", "args": ["serve", "--config", str(path)]}
    cursor.write_text(json.dumps({"mcpServers": {"foretool": entry}}))
    return path


def shown(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Return what was printed, and the next step."""
    out = capsys.readouterr().out
    return out, out.partition("Next: ")[2].partition("\n")[0]


def test_nothing_is_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORETOOL_CONFIG", str(tmp_path / "none.json"))
    assert run([]) == 0
    out, step = shown(capsys)
    assert "not set up yet" in out and step == "foretool init" and list(tmp_path.iterdir()) == []


def test_a_config_that_cannot_be_read(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text("{")
    assert run([]) == 2
    out, step = shown(capsys)
    assert f"{config}:1:2: " in out and step == "foretool doctor"


def test_known_servers_with_figures(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(config).close()
    assert run([]) == 0
    out, step = shown(capsys)
    assert "2 servers, 3 tools" in out and "take 120 tokens" in out and step == "foretool status --stats"


def test_where_no_client_has_foretool_every_screen_says_so_and_leads_to_init(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(config).close()
    run(["status"])
    assert "No proxy is running. Clients start one themselves" in shown(capsys)[0]
    (config.parent / "home/.cursor/mcp.json").write_text('{"mcpServers": {}}')
    told = "no client's file has foretool with this config, so none starts it"
    run([])
    out, step = shown(capsys)
    assert f"No proxy runs now, and {told}." in out and step == "foretool init"
    for command, way in (("status", ": foretool init\n"), ("doctor", "; foretool init registers it\n")):
        run([command])
        assert f"{told}{way}" in shown(capsys)[0]


def test_a_server_that_fails_comes_first(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(config).close()
    with open_store(config.parent / "foretool.sqlite3") as store:
        store.serving.save_state(
            UpstreamState(os.getpid(), time.time(), "sky", "retrying", 9.0, None, 0, 1, 0, "gone", ())
        )
    assert run([]) == 1
    out, step = shown(capsys)
    assert "1 proxy runs now." in out and "sky: gone" in out and step == "foretool doctor"


def test_many_broken_servers_stay_a_few_lines_and_one_problem_is_said_once(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unset = {"command": "node", "env": {"T": "${NO_SUCH_VARIABLE}"}}
    wrong = [{"comand": "x"}, {"command": ["x" * 90]}, {"url": 1}, {"command": "x", "args": "y" * 200}]
    servers = dict(enumerate([unset, unset, unset, unset, *wrong, {"command": "x"}]))
    config.write_text(json.dumps({"mcpServers": {f"s{number}": each for number, each in servers.items()}}, indent=1))
    assert run([]) == 1
    out, step = shown(capsys)
    assert "s0, s1, s2 and 1 more: variable NO_SUCH_VARIABLE is not set" in out and out.count("NO_SUCH_VARIABLE") == 1
    assert "\nand 2 more: foretool doctor\n" in out and step == "foretool doctor"
    assert sum(1 + len(line) // 80 for line in out.splitlines()) <= 12
    run(["list"])
    listed = capsys.readouterr().out
    assert listed.count("NO_SUCH_VARIABLE is not set") == 1 and "s0, s1, s2, s3: variable" in listed


def test_a_damaged_storage_file(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / "foretool.sqlite3").write_text("no database " * 100)
    assert run([]) == 1
    assert shown(capsys)[1] == "foretool doctor"


def test_a_proxy_that_stores_nothing_or_whose_job_fails_is_not_well(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(config).close()
    pid, now, storage = os.getpid(), time.time(), config.parent / "foretool.sqlite3"
    notes = {
        "nothing can be stored": write_note(storage, "trouble", TroubleNote(pid, now, now, "no room")),
        "a background job fails": write_note(storage, "jobs", JobsNote(pid, now, (FailingJob("tick", now, "late"),))),
    }
    for why, (note,) in notes.items():
        assert run([]) == run(["status"]) == 1, why
        out, step = shown(capsys)
        assert f"proxy {pid}" in out and "all is well" not in out, why
        assert step == "foretool doctor" and f"says why {why}" in out, why
        note.unlink()
    assert run([]) == run(["status"]) == 0


def test_a_config_without_servers(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(json.dumps({"mcpServers": {}, "foretool": {"storage": "x.sqlite3", "encoder": "none"}}))
    assert run([]) == 0
    assert shown(capsys)[1] == "foretool add NAME -- COMMAND"


def test_the_order_of_the_steps() -> None:
    def step(missed: MissCount | None = None, calls: int = 9, held: str = "") -> str:
        server = ListedServer("a", "idle", 1, 9, "x", held, "")
        return next_step(Overview((server,), 0, 1, 9, 9, missed, calls))[0]

    assert step(FORECAST, held="1 tool changed") == "foretool review"
    assert step(FORECAST) == "foretool misses 7 --fix"
    assert step(calls=0) == "restart your clients"
    assert step() == "foretool status --stats"
