"""`foretool search --tool`: why a search shows these tools, and why not that one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_fakes import CALC, WEATHER, fill, remember, write_config

from foretool.server.commands.group import run
from foretool.server.config import loader
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Definition, Exposure, Miss, SessionRecord
from foretool.storage.steps import finish

TASK = "forecast of the weather for a city"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = write_config(tmp_path, profiles={"sums": {"servers": ["calc"]}}, list_tokens=1)
    fill(path).close()
    return path


def explain(path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["search", *arguments, "--json", "--config", str(path)]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def reasons(told: dict[str, Any]) -> str:
    return "; ".join(f"{each['what']} -> {each['do']}" for each in told["asked"]["reasons"])


def test_a_tool_that_is_shown_says_where_and_why(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = explain(path, capsys, TASK, "--tool", "sky__forecast")
    assert (told["asked"]["shown"], told["asked"]["rank"]) == (True, 1)
    assert told["asked"]["score"] == pytest.approx(sum(told["asked"]["parts"].values()))
    assert "the search shows it at place 1 (words: " in reasons(told)


def test_a_tool_that_nothing_of_the_task_fits_says_so(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = explain(path, capsys, TASK, "--tool", "calc__add")
    assert (told["asked"]["shown"], told["asked"]["rank"], told["asked"]["parts"]) == (False, 0, {})
    assert "nothing of the task fits it" in reasons(told) and "server 'calc'" in reasons(told)


def test_a_tool_behind_those_that_are_shown_says_what_it_lacked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path)
    with open_store(loader.load(path).storage) as store:
        remember(loader.load(path), store, "calc", {"add": "Adds two numbers, for instance of the people of a city."})
        others = {f"other_{number}": f"Counts things, number {number}." for number in range(40)}
        others |= {f"near_{number}": f"Weather of a city, number {number}." for number in range(8)}
        remember(loader.load(path), store, "sky", {"forecast": "Forecast of the weather for a city.", **others})
    told = explain(path, capsys, TASK, "--tool", "calc__add")
    asked = told["asked"]
    assert asked["rank"] > 3 and not asked["shown"] and asked["score"] < asked["last_shown"]
    assert f"this one is at place {asked['rank']} with {asked['score']:.2f}" in reasons(told)


def test_a_denied_tool_names_its_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, {"calc": {"command": "calc"}, "sky": {"command": "sky", "deny": ["forecast"]}})
    fill(path).close()
    told = explain(path, capsys, TASK, "--tool", "sky__forecast")
    assert not told["asked"]["shown"] and "a rule denies it" in reasons(told)
    assert "sky__forecast" not in [hit["tool"] for hit in told["matches"]]


def test_a_profile_without_its_server_is_named(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = explain(path, capsys, TASK, "--tool", "sky__forecast", "--profile", "sums")
    assert "profile 'sums' does not have its server 'sky'" in reasons(told) and not told["asked"]["shown"]


def test_a_tool_that_waits_for_approval_says_so(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(loader.load(path).storage) as store:
        held = Definition("calc", "tool", "subtract", "h", b'{"name": "subtract"}', exposed="calc__subtract")
        finish(store.approvals.hold("calc", ["tool"], [held]))
    assert run(["search", TASK, "--tool", "calc__subtract", "--config", str(path)]) == 1
    assert "waits for your approval (denied); foretool review calc shows it" in capsys.readouterr().err


def test_an_unknown_tool_is_status_1_with_a_suggestion(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", TASK, "--tool", "sky__forcast", "--config", str(path)]) == 1
    assert "no tool is called 'sky__forcast' (unknown); did you mean sky__forecast?\n" in capsys.readouterr().err


def test_it_records_nothing(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    explain(path, capsys, TASK)
    with open_store(loader.load(path).storage) as store:
        assert len(store.discoveries.recent(9)) == 1


def test_a_hostile_text_steers_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    with open_store(loader.load(path).storage) as store:
        remember(loader.load(path), store, "sky", {"forecast": "Forecast \x1b[2J\x1b]0;owned\x07 of the weather."})
    assert run(["search", f"{TASK} \x1b[31m", "--tool", "sky__forecast", "--config", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err and "\x07" not in out + err


LATER = 4e9
"""After everything else on record."""


def test_the_misses_on_record_say_what_it_was_then(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = loader.load(path)
    with open_store(config.storage) as store:
        store.sessions.begin(SessionRecord("one", "cursor", "1", "legacy", "stdio", "", 1.0))
        store.calls.record([], [miss(WEATHER, "stale", LATER), miss(WEATHER, "policy", 5.0), miss(CALC, "rank", 20.0)])
        store.calls.record([], [miss("", "gate", 30.0, "quux  zyzzy"), miss("", "unknown", 31.0, "another")])
    told = explain(path, capsys, TASK, "--tool", "sky__forecast")
    assert [(each["cause"], each["count"]) for each in told["missed"]][::2] == [("stale", 1), ("policy", 1)]
    told = explain(path, capsys, "quux zyzzy")
    assert [(each["cause"], each["count"]) for each in told["missed"]] == [("gate", 1)]
    run(["search", "quux zyzzy", "--config", str(path)])
    assert "(gate): the search found tools, but was too unsure to show one" in capsys.readouterr().out
    assert explain(path, capsys, "anything", "--profile", "sums")["missed"] == []


def miss(tool: str, cause: Any, at: float, query: str = "") -> Miss:
    return Miss("one", at, tool, "call", cause, 0, 0, query, (), 0, 0, "", "no", 0, 0)


def test_a_list_that_a_running_client_has_counts_until_the_client_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, list_whole=True)
    with open_store(loader.load(path).storage) as store:
        remember(loader.load(path), store, "sky", {"forecast": "Forecast of the weather for a city."})
        for key, at in (("early", 1.0), ("late", LATER)):
            store.sessions.begin(SessionRecord(key, "cursor", "1", "legacy", "stdio", "", at))
            store.sessions.add_exposure(Exposure(key, at, "frozen", 1, (CALC,), 40, "list"))
            store.sessions.add_exposure(Exposure(key, at, "frozen", 1, (WEATHER,), 0, "named"))
    said = explain(path, capsys, TASK, "--tool", "sky__forecast")
    assert said["asked"]["cause"] == "stale"
    assert "lacks it (stale): the client's list is older than " in reasons(said)
    assert "; the next list has it" in reasons(said)
    with open_store(loader.load(path).storage) as store:
        store.sessions.add_exposure(Exposure("late", 0.5, "frozen", 1, (CALC,), 40, "list"))
    said = explain(path, capsys, TASK, "--tool", "sky__forecast")
    assert said["asked"]["cause"] == "offline"
    with open_store(loader.load(path).storage) as store:
        store.sessions.end("late", LATER + 1)
    said = explain(path, capsys, TASK, "--tool", "sky__forecast")
    assert said["asked"]["cause"] is None and "the next list has it" in reasons(said)


def test_a_tool_that_the_list_names_needs_no_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {}
    for names in (False, True):
        path = write_config(tmp_path, policy="frozen", list_tokens=365, list_fill=False, list_names=names)
        if not names:
            with fill(path) as store:
                store.calls.record([Call("s1", 10.0, WEATHER, "sky", "bridge", True, "ok", 1.0, True, "")])
                for session in store.sessions.recent(9):
                    store.sessions.end(session.key, 20.0)
        asked[names] = explain(path, capsys, TASK, "--tool", "sky__forecast")
    before, told = asked[False], asked[True]
    assert "the next list names it, so no search is needed" not in reasons(before)
    assert "the next list names it, so no search is needed" in reasons(told)
    assert (told["asked"]["cause"], told["asked"]["listed"]) == (None, True)
