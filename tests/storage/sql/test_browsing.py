"""What a person looks through comes back by session, by profile and by tool."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from stored_records import CALL, MISS, SESSION

from foretool.storage.records import Exposure, Neighbour, ProfileCount, Prompt, SessionSum, ToolId, Usage
from foretool.storage.sql import browsing
from foretool.storage.store import Store

A, B, C = ToolId("u__a"), ToolId("u__b"), ToolId("u__c")
FIRST = replace(SESSION, key="s1", client="cursor", profile="", started_at=10.0)
SECOND = replace(SESSION, key="s2", client="codex", profile="work", started_at=100.0)


def fill(store: Store) -> None:
    """Two sessions one after the other: a, b, a for `cursor`; b, a (hidden) and a refused c for `codex`."""
    store.sessions.begin(FIRST)
    store.calls.record(
        [replace(CALL, session="s1", tool=tool, at=at) for tool, at in ((A, 11.0), (B, 12.0), (A, 13.0))]
    )
    store.sessions.end("s1", 20.0)
    store.sessions.begin(SECOND)
    hidden = replace(CALL, session="s2", tool=A, at=102.0, hidden=True)
    refused = replace(CALL, session="s2", tool=C, at=103.0, outcome="refused")
    calls = [replace(CALL, session="s2", tool=B, at=101.0), hidden, refused]
    store.calls.record(calls, [replace(MISS, session="s2", tool=A, at=102.0, call=2)])


def test_sessions_come_with_their_sums_the_newest_first(store: Store) -> None:
    fill(store)
    ended = replace(FIRST, ended_at=20.0)
    assert store.browsing.sessions(1e9, 10) == [
        SessionSum(SECOND, 3, 1, 1, 103.0, refused=1),
        SessionSum(ended, 3, 0, 0, 13.0),
    ]
    assert [each.session.key for each in store.browsing.sessions(100.0, 10)] == ["s1"]
    assert [each.session.key for each in store.browsing.sessions(1e9, 1)] == ["s2"]


def test_a_profile_or_a_client_limits_the_sessions(store: Store) -> None:
    fill(store)
    assert [each.session.key for each in store.browsing.sessions(1e9, 10, "work")] == ["s2"]
    assert [each.session.key for each in store.browsing.sessions(1e9, 10, "")] == ["s1"]
    assert [each.session.key for each in store.browsing.sessions(1e9, 10, None, "Cursor")] == ["s1"]
    assert store.browsing.sessions(1e9, 10, "work", "cursor") == []


def test_a_session_has_its_own_calls_and_misses_alone(store: Store) -> None:
    fill(store)
    assert [call.tool for call in store.browsing.calls_of("s1", 10)] == [A, B, A]
    assert [call.tool for call in store.browsing.calls_of("s2", 10)] == [B, A, C]
    assert [call.tool for call in store.browsing.calls_of("s1", 2)] == [A, B]
    assert [miss.tool for miss in store.browsing.misses_of("s2", 10)] == [A]
    assert store.browsing.misses_of("s1", 10) == store.browsing.misses_of("unknown", 10) == []
    assert store.browsing.calls_of("unknown", 10) == []


def test_neighbours_of_a_tool_are_counted_by_client_and_side(store: Store) -> None:
    fill(store)
    assert store.browsing.neighbours(A, 100) == [
        Neighbour("codex", ToolId(""), False, 1),
        Neighbour("codex", B, True, 1),
        Neighbour("cursor", ToolId(""), False, 1),
        Neighbour("cursor", ToolId(""), True, 1),
        Neighbour("cursor", B, False, 1),
        Neighbour("cursor", B, True, 1),
    ]
    assert {each.client for each in store.browsing.neighbours(A, 100, "work")} == {"codex"}
    assert store.browsing.neighbours(ToolId("u__none"), 100) == []


def test_what_a_profile_did_is_counted_by_hour_and_client(store: Store) -> None:
    fill(store)
    later = replace(CALL, session="s2", tool=B, at=7300.0)
    store.calls.record([later])
    assert store.browsing.counts("work", 0.0, 100) == [
        ProfileCount(0.0, "codex", 3, 1, 1, 0, refused=1),
        ProfileCount(7200.0, "codex", 1, 0, 0, 0),
    ]
    assert store.browsing.counts("work", 7200.0, 100) == [ProfileCount(7200.0, "codex", 1, 0, 0, 0)]
    assert store.browsing.counts("other", 0.0, 100) == []


def test_the_use_of_a_profile_is_its_own(store: Store) -> None:
    fill(store)
    assert sorted(store.browsing.usage("work", 100), key=lambda each: each.tool) == [
        Usage(A, 1, 1, 102.0),
        Usage(B, 1, 0, 101.0),
    ]
    assert store.browsing.usage("other", 100) == []


@pytest.mark.parametrize("page", [1, 2, 100])
def test_pages_of_every_size_hold_each_record_once(page: int, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "PAGE", page)
    store.calls.record([replace(CALL, at=float(at), tool=f"t{at}") for at in range(7)])
    store.sessions.add_exposure(Exposure("s", 3.0, "frozen", 1, (), 9, "list"))
    store.tasks.add_prompt(Prompt(2.0, "do it"))
    assert [each.at for each in store.exporting.calls(2.0, 6.0)] == [2.0, 3.0, 4.0, 5.0]
    assert list(store.exporting.calls(0.0, 9.0)) == store.calls.recent(-1)[::-1]
    assert [each.text for each in store.exporting.call_events(0.0, 9.0)] == [f"t{at}" for at in range(7)]
    assert [each.tokens for each in store.exporting.exposures(0.0, 9.0)] == [9]
    assert list(store.exporting.misses(0.0, 9.0)) == list(store.exporting.task_events(0.0, 9.0)) == []
    assert [each.text for each in store.exporting.prompts(0.0, 9.0)] == ["do it"]
