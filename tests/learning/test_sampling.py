"""Learning reads the latest tasks and a few older ones of rare tools, however long the log is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from requirements import requirement

from foretool.learning.run import Learner
from foretool.learning.sampling import (
    SampleLimits,
    choose_episodes,
    choose_tasks,
    clean_episodes,
    clean_missed,
    episode_session,
    read_sample,
    sharing,
)
from foretool.server import offline
from foretool.storage.records import Call, Discovery, Episode, MissedNeed, SessionRecord, ToolId
from foretool.storage.store import Store

if TYPE_CHECKING:
    from learning_setting import Setting

OFTEN, RARE, GONE = ToolId("a__often"), ToolId("a__rare"), ToolId("a__gone")
TOOLS = dict.fromkeys((OFTEN, RARE))
LIMITS = SampleLimits(tasks=20, calls=1000, rare=6, of_tool=3, read=50)
TOOL = ToolId("git__push")
ADD = ToolId("calc__add")
PEOPLE = {"s1": ("ann", True), "s2": ("ben", True), "s3": ("cem", True), "s4": ("ann", True), "s5": ("dan", False)}


def do(store: Store, number: int, *tools: ToolId, task: str = "") -> None:
    """One task: a session that asks for something and calls tools for it."""
    at = 10_000.0 * number
    session = f"s{number}"
    if task:
        store.discoveries.add(Discovery(session, at, task, (), None, "high", (), 80, 1.0))
    store.calls.record(
        [
            Call(session, at + 1 + place, tool, "a", "name", True, "ok", 1.0, True, "")
            for place, tool in enumerate(tools)
        ]
    )


@requirement("learn:bounded")
def test_the_latest_tasks_are_read_and_older_ones_of_a_rare_tool(store: Store) -> None:
    for number in range(1, 401):
        rare = number in (5, 9, 60, 130, 200)
        do(store, number, *((OFTEN, RARE) if rare else (OFTEN,)), task=f"task {number}")
    imported, logged = read_sample(store, 1e9, TOOLS, LIMITS)
    assert imported == []
    latest = [each for each in logged if RARE not in each.calls]
    assert [each.tasks for each in latest] == [(f"task {number}",) for number in range(381, 401)]
    # The latest three of five, with what their sessions did and asked.
    found = [(each.tasks, each.calls) for each in logged if RARE in each.calls]
    assert found == [((f"task {number}",), (OFTEN, RARE)) for number in (60, 130, 200)]
    assert logged == sorted(logged, key=lambda each: each.at)


@requirement("learn:bounded")
def test_a_tool_that_is_gone_is_not_looked_for(store: Store) -> None:
    do(store, 1, GONE)
    for number in range(2, 200):
        do(store, number, OFTEN)
    _, logged = read_sample(store, 1e9, TOOLS, LIMITS)
    assert {tool for each in logged for tool in each.calls} == {OFTEN}


@requirement("learn:bounded")
def test_a_short_log_is_read_whole(store: Store) -> None:
    for number in range(1, 16):
        do(store, number, OFTEN, RARE)
    assert len(read_sample(store, 1e9, TOOLS, LIMITS)[1]) == 15


@requirement("learn:bounded")
def test_demonstrations_fill_what_the_log_leaves(store: Store) -> None:
    told = [Episode((OFTEN if number else RARE,), (f"told {number}",), source="import") for number in range(300)]
    store.artifacts.add_demonstrations(told)
    do(store, 1, OFTEN, task="mine")
    imported, logged = read_sample(store, 1e9, TOOLS, LIMITS)
    assert [each.tasks for each in logged] == [("mine",)]
    assert [each.tasks[0] for each in imported] == ["told 0", *(f"told {number}" for number in range(281, 300))]
    assert store.artifacts.count_demonstrations() == 300


@requirement("learn:bounded")
def test_what_is_chosen_stays_bounded_and_keeps_every_tool() -> None:
    tools = [ToolId(f"t{number}") for number in range(100)]
    whole = [Episode((tools[min(number % 1000, 99)],), at=float(-number)) for number in range(50_000)]
    limits = SampleLimits(tasks=500, calls=10_000, rare=400, of_tool=4)
    chosen = choose_tasks(iter(whole), limits)
    assert len(chosen) <= limits.tasks + limits.rare
    counts = Counter(tool for each in chosen for tool in each.calls)
    assert all(counts[tool] >= limits.of_tool for tool in tools)
    assert chosen[:500] == whole[:500]


@requirement("learn:bounded")
def test_long_tasks_count_by_their_calls() -> None:
    whole = [Episode((OFTEN,) * 50, at=float(-number)) for number in range(100)]
    assert len(choose_tasks(whole, SampleLimits(tasks=100, calls=500, rare=0))) == 10
    assert len(choose_tasks(whole, SampleLimits(tasks=100, calls=1, rare=0))) == 1  # one is always there


def test_calls_of_rare_tools_are_found_across_slices(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretool.storage.sql.calls._AT_ONCE", 7)
    for number in range(1, 101):
        do(store, number, RARE if number % 10 == 0 else OFTEN)
    assert store.calls.latest_of([RARE], 3, 95, 1000) == [90, 80, 70]
    assert store.calls.latest_of([RARE], 3, 95, 12) == [90]
    assert store.calls.latest_of([], 3, 95, 1000) == []
    assert store.calls.first_of_latest(10) == 91
    assert [each.session for each in store.calls.events_between(3, 5)] == ["s3", "s4", "s5"]


def said(session: str, *tasks: str) -> Episode:
    return Episode((TOOL,), tasks, key=f"{session}:1", arguments=("{}",))


@requirement("trust:shared-words")
def test_a_word_enters_only_if_enough_people_have_used_it() -> None:
    episodes = [
        said("s1", "Push the branch of HUSHHUSH", "push it"), said("s2", "push a branch"),
        said("s3/h1", "PUSH, branch!"), said("s4", "hushhush hushhush: push"),
    ]  # fmt: skip
    clean = sharing(episodes, PEOPLE, 3)
    assert [each.tasks for each in clean_episodes(episodes, clean)] == [
        ("Push branch", "push"), ("push branch",), ("PUSH, branch!",), (": push",),
    ]  # fmt: skip
    assert clean("hushhush") == "" == clean("?!") and clean("push hushhush-7") == "push -"
    assert clean_missed([MissedNeed(1.0, "hushhush", TOOL), MissedNeed(1.0, "push hushhush", TOOL)], clean) == [
        MissedNeed(1.0, "push", TOOL)
    ]
    changed, *_, kept = clean_episodes([episodes[0], episodes[2]], clean)
    assert changed.arguments == () and kept == episodes[2]


@requirement("trust:shared-words")
def test_one_person_in_many_sessions_is_one_person() -> None:
    episodes = [said(session, "secret plan") for session in ("s1", "s4", "s1", "s4")]
    assert sharing(episodes, PEOPLE, 2)("secret plan") == ""
    unknown = [said(f"x{number}", "secret plan") for number in range(9)]  # nobody knows whose they are
    assert sharing(unknown, PEOPLE, 2)("secret plan") == ""


def test_where_nobody_called_over_http_nothing_is_taken_out() -> None:
    assert sharing([said("s1", "secret plan")], {}, 3)("secret plan") == "secret plan"
    assert sharing([said("s1", "secret plan")], {"s1": ("", False)}, 3)("a b") == "a b"
    assert sharing([said("s1", "secret plan")], PEOPLE, 1)("secret plan") == "secret plan"


@requirement("trust:shared-words")
def test_sessions_that_may_not_be_learned_from_stay_out() -> None:
    episodes = [said("s1", "a"), said("s5", "b"), said("s5/handle", "c"), said("s9", "d")]
    assert [each.tasks for each in choose_episodes(episodes, PEOPLE)] == [("a",), ("d",)]
    assert [episode_session(each) for each in episodes] == ["s1", "s5", "s5", "s9"]


@requirement("trust:shared-words")
def test_a_run_learns_from_shared_words_alone(setting: Setting) -> None:
    from foretool.learning.training.linear_maps import fit_lsa

    store = setting.store
    for number, (person, learns) in enumerate(PEOPLE.values()):
        key, at = f"{number:032x}", 1000.0 * (number + 1)
        store.sessions.begin(SessionRecord(key, "c", "1", "modern", "http", "", at, at + 60))
        store.sessions.name_person(key, person, learns=learns, at=at)
        words = "add numbers" + (" hushhush" if person == "ann" else " opted" if not learns else "")
        found = store.discoveries.add(Discovery(key, at + 1, words, (), None, "high", (), 90, 1.0))
        store.calls.record([Call(key, at + 2, ADD, "calc", "name", False, "ok", 1.0, True, "{}", found)], [])
    with offline.open_offline(setting.config) as app:
        learner = Learner(setting.config, app.catalog, store, lambda *_: None, 1e6)
    tasks = [task for each in learner.timeline.episodes for task in each.tasks]
    assert tasks == ["add numbers"] * 4  # of Ann, Ben, Cem and Ann again; not of Dan
    assert "hushhush" not in fit_lsa(tasks, 8, 1).vocabulary
    assert "hushhush" in fit_lsa(["add numbers hushhush"] * 2, 8, 1).vocabulary  # as it would have been
