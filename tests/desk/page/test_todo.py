"""What the first page says is to be done, the most urgent first."""

from __future__ import annotations

import time
from pathlib import Path

from command_fakes import CALC, WEATHER, fill, remember, write_config
from held_fakes import EVIL, hold_changes
from msgspec.structs import replace
from stored_records import MISS

from foretool.desk.page.overview import read_overview
from foretool.desk.page.todo import Todo
from foretool.desk.page.viewers import Viewer
from foretool.server.commands.list import read_state
from foretool.server.config.loader import load
from foretool.server.upstreams.failure_memory import digest_entry
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Definition, Failure, ToolId
from foretool.storage.steps import finish

ALL = Viewer("key")


def test_what_fails_comes_first_then_reviews_then_the_most_missed_tool(tmp_path: Path) -> None:
    # "calc" fails, changes of it wait, "sky" has a missed tool that a small list lacks, and "moon" was never started.
    path = write_config(
        tmp_path, {name: {"command": name} for name in ("calc", "sky", "moon")}, list_tokens=1, pin=["calc__add"]
    )
    config, now = load(path), time.time()
    with fill(path) as store:
        failure = Failure("calc", digest_entry(config.servers["calc"]), "FT201", "not found [FT201]", now, now, 1, now)
        store.serving.save_failure(failure)
        missed = replace(MISS, session="s1", at=now, tool=WEATHER, cause="budget", change="pin sky__forecast", call=0)
        other = replace(missed, tool="sky__gone")
        store.calls.record([], [missed, other, other, replace(missed, tool=CALC)])
    hold_changes(config)
    page = read_overview(config, ALL)
    repair, review, show, doctor = page.todo
    assert repair == Todo("Repair calc", "not found [FT201]; foretool doctor calc tries again", "#servers")
    assert (review.what, review.link) == ("Review calc", "review/calc")
    assert "not served before you approve it" in review.why
    # A tool that no server has any more, and one that the list has, need no change.
    assert (show.what, show.why, show.link) == (f"List {WEATHER} always", "missed 1 time", "misses/2")
    assert doctor.what == "Run foretool doctor" and "moon" in doctor.why
    assert page.servers[0].name == "calc"


def test_a_tool_is_told_with_all_its_misses_and_one_that_never_worked_is_not_to_be_listed(tmp_path: Path) -> None:
    path = write_config(tmp_path, list_tokens=1)
    config, now = load(path), time.time()
    with fill(path) as store:
        missed = replace(MISS, session="s1", at=now, tool=WEATHER, cause="budget", change="pin sky__forecast", call=0)
        down = replace(missed, tool="sky__moon", change="pin sky__moon")
        lost = Call("s1", now, ToolId("sky__moon"), "sky", "bridge", True, "lost", 1.0, True, "")
        again = replace(missed, cause="offline", change="foretool doctor sky", at=now + 1)
        store.calls.record([lost] * 3, [missed, again, *(replace(down, at=now + at) for at in range(3))])
    page = read_overview(config, ALL)
    (show,) = [each for each in page.todo if each.what.startswith("List ")]
    assert (show.what, show.why) == (f"List {WEATHER} always", "missed 2 times")
    assert ("sky__moon", 3) in [(each.name, each.count) for each in page.most_missed]
    assert (WEATHER, 2) in [(each.name, each.count) for each in page.most_missed]
    state = read_state(config)
    assert state.missed is not None and (state.missed.tool, state.missed.count) == (WEATHER, 2)


def test_a_tool_that_the_config_or_a_rule_kept_away_is_not_to_be_listed(tmp_path: Path) -> None:
    path = write_config(tmp_path, list_tokens=1)
    with fill(path) as store:
        missed = replace(MISS, session="s1", at=time.time(), tool="sky__moon", change="foretool enable sky", call=0)
        store.calls.record([], [replace(missed, cause=cause) for cause in ("gone", "denied", "offline")])
    assert not [each for each in read_overview(load(path), ALL).todo if "sky__moon" in each.what]


def test_many_of_a_kind_are_one_thing_to_do(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(5)]
    path = write_config(tmp_path, {name: {"command": name} for name in names})
    config = load(path)
    with open_store(config.storage) as store:
        for name in names:
            remember(config, store, name, {"add": "Adds."})
            finish(store.approvals.add_first([Definition(name, "launch", "", "f", b"{}", "approved")]))
            finish(store.approvals.hold(name, ["tool"], [replace(EVIL, server=name)]))
            store.serving.save_failure(Failure(name, digest_entry(config.servers[name]), "FT201", "away", 1, 2, 1, 3))
    repair, review = read_overview(config, ALL).todo
    assert (repair.what, repair.why) == (
        "Repair 5 servers",
        "s0, s1, s2 and 2 more; foretool doctor tries all of them again",
    )
    assert (review.what, review.link) == ("Review 5 servers", "tools#review")


def test_somebody_who_sees_one_profile_is_not_asked_to_do_what_others_decide(tmp_path: Path) -> None:
    path = write_config(tmp_path, profiles={"work": {"servers": ["calc"]}})
    config = load(path)
    fill(path).close()
    hold_changes(config)
    assert read_overview(config, Viewer("key", "work", may_decide=False)).todo == []
