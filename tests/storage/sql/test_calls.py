"""Calls and misses come back as the records they were."""

import pytest
from msgspec.structs import replace
from requirements import requirement
from stored_records import CALL, DISCOVERY, MISS, SESSION

from foretool.storage.records import MissCount, MissFilter, Retry, Selection, ToolId, Usage
from foretool.storage.sql.calls import FOLDED, MOST_ARGUMENTS
from foretool.storage.store import Store

LOGIN, POST, LIST = ToolId("u__login"), ToolId("u__post"), ToolId("u__list")


def test_a_miss_without_calls_is_recorded(store: Store) -> None:
    store.calls.record([], [MISS])
    store.calls.record([])
    assert store.calls.misses(0) == [replace(MISS, id=1)]


def test_a_miss_cannot_refer_to_a_call_outside_its_batch(store: Store) -> None:
    with pytest.raises(ValueError, match="place of a call in its batch of 1"):
        store.calls.record([CALL], [replace(MISS, call=2)])
    assert store.calls.recent(1) == []


def test_a_miss_is_revised_or_taken_back_and_the_call_that_revealed_it_stays(store: Store) -> None:
    search = replace(MISS, noticed="search", tool="", discovery=5)
    store.calls.record([CALL], [replace(MISS, call=1), search, replace(search, discovery=6)])
    known = replace(search, tool="git__log", rank=7, turns=0, tokens=0)
    store.calls.revise([(MISS, replace(MISS, turns=3, tokens=1224)), (search, known)])
    assert store.calls.misses() == [
        replace(search, discovery=6, id=3),
        replace(known, id=2),
        replace(MISS, turns=3, tokens=1224, id=1, call=1),
    ]
    assert [each.misses for each in store.calls.usage() if each.tool == MISS.tool] == [1]
    store.calls.revise([(known, None), (replace(search, discovery=6), None)])
    assert [each.id for each in store.calls.misses()] == [1]
    # Its id may be given again, and what gets it is counted all the same.
    store.calls.record([], [MISS])
    assert [each.misses for each in store.calls.usage() if each.tool == MISS.tool] == [2]


def test_misses_since_a_time_come_newest_first(store: Store) -> None:
    store.calls.record([], [replace(MISS, at=at) for at in (3.0, 1.0, 2.0)])
    assert [miss.at for miss in store.calls.misses(2.0)] == [3.0, 2.0]
    assert [miss.at for miss in store.calls.misses(0.0, limit=1)] == [3.0]


def test_misses_are_counted_by_tool_and_cause(store: Store) -> None:
    missed = replace(MISS, tool="u__a", recovered="no", turns=1, tokens=10)
    other = replace(missed, cause="rank", recovered="called")
    store.calls.record([], [missed, other, replace(other, at=99.0), replace(missed, at=1.0)])
    assert store.calls.count_misses(MissFilter(since=2.0)) == [
        MissCount("u__a", "rank", 2, 2, 2, 20, 99.0, 3),
        MissCount("u__a", "budget", 1, 0, 1, 10, MISS.at, 1),
    ]


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (MissFilter(), [3, 2, 1]),
        (MissFilter(since=2.0), [3, 2]),
        (MissFilter(until=2.0), [1]),
        (MissFilter(server="git"), [2]),
        (MissFilter(tool="LAME"), [2]),
        (MissFilter(tool="git__*"), [2]),
        (MissFilter(tool="lame*"), []),
        (MissFilter(cause="rank"), [1]),
        (MissFilter(client="CURSOR"), [3]),
        (MissFilter(profile=""), [2, 1]),
        (MissFilter(profile="work"), [3]),
        (MissFilter(recovered=False), [1]),
        (MissFilter(recovered=True, tool="x"), [3]),
    ],
)
def test_misses_are_found_by_each_condition(wanted: MissFilter, ids: list[int], store: Store) -> None:
    store.sessions.begin(replace(SESSION, key="a", client="codex", profile=""))
    store.sessions.begin(replace(SESSION, key="b", client="cursor", profile="work"))
    store.catalog.save_exposed_names({ToolId("git__blame"): ("git", "blame")})
    store.calls.record(
        [],
        [
            replace(MISS, at=1.0, session="a", tool="x", cause="rank", recovered="no"),
            replace(MISS, at=2.0, session="a", tool="git__blame", cause="budget", recovered="called"),
            replace(MISS, at=3.0, session="b", tool="x", cause="budget", recovered="discovered"),
        ],
    )
    assert [miss.id for miss in store.calls.find_misses(wanted)] == ids
    assert sum(each.count for each in store.calls.count_misses(wanted)) == len(ids)


def test_tools_that_failed_at_each_of_several_calls_are_found(store: Store) -> None:
    """One call, or two, may have had wrong arguments, or a client that could not be asked."""
    store.sessions.begin(SESSION)
    outcomes = {
        "a": ("ok", "error", "error", "error"),
        "b": ("error", "lost", "lost"),
        "c": ("refused",) * 3,
        "d": ("cancelled",) * 3,
        "e": ("tool_error",) * 3,
        "f": ("tool_error", "error"),
    }
    store.calls.record([replace(CALL, tool=ToolId(t), outcome=each) for t, found in outcomes.items() for each in found])
    assert store.calls.failing(100) == {"b", "e"}
    assert store.calls.failing(17) == {"a", "b", "e"}


def test_many_calls_are_counted_a_few_thousand_at_a_time(store: Store) -> None:
    store.sessions.begin(SESSION)
    store.calls.record([CALL] * (2 * FOLDED + 1), [MISS])
    counts = []
    while more := store.calls.fold_some():
        counts.append((more, store.calls.counted_usage()[0].calls))
    assert counts == [(True, FOLDED), (True, 2 * FOLDED)]
    assert [each.calls for each in store.calls.counted_usage()] == [2 * FOLDED + 1, 0]
    assert not store.calls.fold_some()


def test_a_retry_is_the_next_call_of_its_conversation_and_of_another_tool(store: Store) -> None:
    other = ToolId("fs__other")
    calls = [
        (10.0, CALL.tool, "error", ""), (11.0, CALL.tool, "error", "h"), (12.0, other, "refused", ""),
        (13.0, other, "ok", ""), (90.0, other, "ok", "h"),
        (91.0, CALL.tool, "error", "h"), (92.0, CALL.tool, "ok", "h"),
    ]  # fmt: skip
    done = [
        replace(CALL, session="s", at=at, tool=tool, outcome=outcome, handle=handle)
        for at, tool, outcome, handle in calls
    ]
    # A call is written when it ends, so the first one here is written last.
    store.calls.record([*done[1:], done[0]])
    assert store.calls.retries(-1, 0.0, 60.0) == ([Retry("s", "", 10.0, CALL.tool, 13.0, other)], 10.0)
    assert [each.at for each in store.calls.retries(-1, 0.0, 600.0)[0]] == [13.0, 90.0]
    assert store.calls.retries(-1, 11.0, 60.0) == ([], 11.0)
    assert store.calls.retries(3, 0.0, 60.0) == ([], 10.0)
    assert store.calls.retries(-1, 500.0, 60.0) == ([], 500.0)


def test_what_was_used_before_and_after_a_time(store: Store) -> None:
    store.sessions.begin(SESSION)
    calls = [(1.0, POST, "ok"), (2.0, LIST, "ok"), (3.0, POST, "error"), (4.0, LOGIN, "refused"), (5.0, POST, "ok")]
    store.calls.record(
        [replace(CALL, at=at, tool=tool, outcome=outcome) for at, tool, outcome in calls],
        [replace(MISS, at=4.5, tool=LIST), replace(MISS, at=0.5, tool=LIST)],
    )
    assert [each.at for each in store.calls.events_before(5.0, 2, 10)] == [2.0, 3.0]
    assert [each.at for each in store.calls.events_before(5.0, 9, 4)] == [2.0, 3.0]
    assert store.calls.last_used(5.0, 10) == {POST: 3.0, LIST: 2.0}
    found = sorted(store.calls.used_since(3.0, 10), key=lambda each: each.tool)
    assert found == [Usage(LIST, 0, 1, 0.0), Usage(POST, 2, 0, 5.0)]


def opt_out(store: Store) -> None:
    """Record a call, a miss and a search of a person who opted out beside the same of one who did not."""
    for session, person, learns in (("s1", "ann", True), ("s2", "ben", False)):
        store.sessions.begin(replace(SESSION, key=session))
        store.sessions.name_person(session, person, learns=learns, at=1.0)
        tool = ToolId(f"u__{person}")
        shared = replace(CALL, session=session, tool=ToolId("u__shared"))
        store.calls.record(
            [shared, replace(shared, tool=tool)], [replace(MISS, session=session, tool=tool, noticed="call", call=2)]
        )
        store.discoveries.add(replace(DISCOVERY, session=session, task=f"task of {person}", names=()))
    store.calls.record([replace(CALL, session="s3", tool=ToolId("u__local"))])


@requirement("learn:opt-out")
def test_what_people_did_who_opted_out_counts_for_nobody(store: Store) -> None:
    opt_out(store)
    counts = {each.tool: (each.calls, each.misses) for each in store.calls.usage()}
    assert counts == {"u__shared": (1, 0), "u__ann": (1, 1), "u__local": (1, 0)}
    assert {each.tool for each in store.calls.used_since(0.0, 100)} == {"u__shared", "u__ann", "u__local"}
    assert store.tasks.latest(10) == ["task of ann"]
    assert [each.task for each in store.discoveries.answered(10)] == ["task of ann"]
    assert {each.session for each in store.calls.shared_events(100)} == {"s1", "s3"}
    # It is on record all the same.
    assert len(store.calls.recent(100)) == 5 and len(store.calls.events(100)) == 5


def test_a_call_with_long_arguments_is_read_as_one_without_where_many_are_read(store: Store) -> None:
    long = '{"text":"%s"}' % ("x" * MOST_ARGUMENTS)
    store.calls.record([replace(CALL, arguments=long), CALL])
    wanted = ["", CALL.arguments]
    assert [each.arguments for each in store.calls.events(10)] == wanted
    assert [each.arguments for each in store.calls.shared_events(10)] == wanted
    assert [each.arguments for each in store.exporting.call_events(0.0, 100.0)] == wanted
    assert [each.arguments for each in store.exporting.calls(0.0, 100.0)] == [long, CALL.arguments]


@requirement("learn:opt-out")
def test_forgetting_counts_down_what_was_counted_and_nothing_else(store: Store) -> None:
    opt_out(store)
    refused, unknown = replace(CALL, tool=ToolId("u__shared"), outcome="refused"), replace(MISS, tool="u__shared")
    store.calls.record([replace(refused, session="s4")], [replace(unknown, session="s4", noticed="unknown_name")])
    before = store.calls.usage()
    for session in ("s2", "s4"):
        assert store.forgetting.forget(Selection(session=session)).counts["calls"]
        assert store.calls.usage() == before
    store.forgetting.forget(Selection(session="s1"))
    assert [each.tool for each in store.calls.usage()] == ["u__local"]


def call_in_profiles(store: Store) -> None:
    """Record calls and a miss of two profiles; of one session of the second nobody may learn."""
    for session, profile, learns in (("s1", "ops", True), ("s2", "web", True), ("s3", "web", False)):
        store.sessions.begin(replace(SESSION, key=session, profile=profile))
        store.sessions.name_person(session, f"oauth:{session}", learns=learns, at=1.0)
        call = replace(CALL, session=session, tool=ToolId(f"u__{session}"))
        store.calls.record(
            [call, replace(call, tool=ToolId("u__shared"), at=CALL.at + 9.0), replace(call, outcome="refused")],
            [replace(MISS, session=session, tool="u__shared", noticed="call", call=2)],
        )
        store.discoveries.add(replace(DISCOVERY, session=session, task=f"task of {session}"))


@requirement("learn:profiles")
def test_the_use_of_tools_is_counted_for_each_profile_and_counted_down_for_it(store: Store) -> None:
    call_in_profiles(store)
    store.calls.usage()
    late = CALL.at + 9.0
    ops = [Usage(ToolId("u__s1"), 1, 0, CALL.at), Usage(ToolId("u__shared"), 1, 1, late)]
    web = [Usage(ToolId("u__s2"), 1, 0, CALL.at), Usage(ToolId("u__shared"), 1, 1, late)]
    assert store.calls.counted_usage_of("ops") == ops
    assert store.calls.counted_usage_of("web") == web
    assert store.calls.counted_usage_of("") == []
    call_in_profiles(store)
    store.calls.usage()
    assert [(each.calls, each.misses) for each in store.calls.counted_usage_of("ops")] == [(2, 0), (2, 2)]
    store.forgetting.forget(Selection(session="s2"))
    assert store.calls.counted_usage_of("web") == []
    assert [each.tool for each in store.calls.counted_usage_of("ops")] == ["u__s1", "u__shared"]
    store.forgetting.forget(Selection(tool="u__shared"))
    assert [each.tool for each in store.calls.counted_usage_of("ops")] == ["u__s1"]
    store.forgetting.forget(Selection(everything=True))
    assert store.calls.counted_usage_of("ops") == []


@requirement("learn:profiles", "learn:opt-out")
def test_the_latest_tasks_of_a_profile_are_those_of_its_sessions(store: Store) -> None:
    call_in_profiles(store)
    assert store.tasks.latest(5, "ops") == ["task of s1"]
    assert store.tasks.latest(5, "web") == ["task of s2"]
    assert store.tasks.latest(5, "none") == []
    assert sorted(store.tasks.latest(5)) == ["task of s1", "task of s2"]
