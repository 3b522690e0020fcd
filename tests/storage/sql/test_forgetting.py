"""What a user selects is deleted wherever it stands; the rest stays whole."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from requirements import requirement
from stored_records import CALL, DISCOVERY, EXPOSURE, MISS, SESSION, connection_of, granted_servers, rows

from foretool.storage.opening import open_store
from foretool.storage.records import Episode, Selection, ToolId
from foretool.storage.sql.calls import CallStore
from foretool.storage.store import Store
from tests.storage.sql.test_retention import TABLES, counts, fill

SECRET = "ghp_" + "Zx81Qw62Er" * 4


@pytest.fixture
def both(path: Path) -> Store:
    store = open_store(path)
    for number, name in enumerate(("bank", "mail")):
        fill(store, 100.0 + number, name)
    store.calls.usage()
    return store


@requirement("trust:data:forget")
@pytest.mark.parametrize("selection", [Selection(server="bank"), Selection(tool="bank")])
def test_a_server_is_forgotten_in_every_table_and_its_names_stay_taken(
    selection: Selection, both: Store, path: Path
) -> None:
    dry = both.forgetting.forget(selection, dry=True)
    assert both.forgetting.forget(selection) == dry
    left = counts(path)
    # A discovery, a prompt and a step are of no tool unless it was found or selected.
    gone = {table for table, count in left.items() if count == 1}
    assert {"calls", "misses", "flows"} <= gone
    # That clients were given lists, and what these took, stays: other calls read them.
    with closing(sqlite3.connect(path)) as database:
        lists = {tools for (tools,) in database.execute("SELECT tools FROM lists")}
    assert left["exposures"] == 2 and not any("bank" in tools for tools in lists)
    assert ("upstreams" in gone) == (not selection.tool)
    assert [each.tool for each in both.calls.usage()] == ["mail"]
    assert set(both.catalog.exposed_names()) == {"bank", "mail"}
    (miss,) = both.calls.misses()
    assert miss.call == both.calls.recent(1)[0].id and both.discoveries.get(miss.discovery)
    both.close()


@requirement("trust:data:forget")
def test_everything_is_forgotten_but_names(both: Store, path: Path) -> None:
    both.artifacts.add("dtdr", b"model", {}, promote=True)
    both.artifacts.add_demonstrations([Episode((ToolId("bank"),), ("pay",))])
    both.forgetting.forget(Selection(everything=True))
    assert set(counts(path).values()) == {0}, counts(path)
    assert both.artifacts.history() == [] and both.artifacts.count_demonstrations() == 0
    assert both.calls.usage() == []
    fill(both, 300.0, "bank")
    assert [each.calls for each in both.calls.usage()] == [1]
    assert len(both.catalog.exposed_names()) == 2
    both.close()


@requirement("trust:data:forget")
def test_a_secret_that_an_earlier_version_wrote_is_found_and_leaves_no_byte(both: Store, path: Path) -> None:
    connection_of(both).execute("UPDATE prompts SET text = ? WHERE id = 1", (f"use {SECRET} now",))
    assert any(SECRET.encode() in each.read_bytes() for each in path.parent.iterdir())
    found = both.forgetting.forget(Selection(texts=(SECRET,)))
    assert found.counts == {"prompts": 1}
    assert found.tasks == (f"use {SECRET} now",)
    assert both.forgetting.compact()
    assert not any(SECRET.encode() in each.read_bytes() for each in path.parent.iterdir())
    both.close()


@requirement("trust:data:forget")
def test_while_another_process_reads_the_log_that_is_said(both: Store, path: Path) -> None:
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM calls").fetchall()
    both.forgetting.forget(Selection(everything=True))
    connection_of(both).execute("PRAGMA busy_timeout = 10")
    assert not both.forgetting.compact()
    reader.close()
    assert both.forgetting.compact()
    both.close()


def test_words_are_taken_literally(both: Store) -> None:
    for words in ("%", "p_ompt", "!", "'; DROP TABLE calls; --"):
        assert both.forgetting.forget(Selection(texts=(words,))).counts == {}
    assert both.forgetting.forget(Selection(texts=("PROMPT of", "bank")), dry=True).counts == {"prompts": 1}
    both.close()


def test_every_table_of_the_log_answers(path: Path) -> None:
    open_store(path).close()
    known = set(TABLES) | {
        "usage", "usage_folded", "artifacts", "demonstrations", "upstream_states", "counters", "migrations",
        "exposed_names", "approvals", "costs", "costs_marks", "costs_open", "audit", "grants",
        "consents", "session_people", "wordings", "profile_usage", "failures", "kept_calls",
        "catalog_tokens",
    }  # fmt: skip
    found = {name for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert found - known == set(), "say in retention.py and forgetting.py what becomes of the new table"


ODD = "oauth:x' OR '1'='1"


def act(store: Store, session: str, person: str, at: float, *, learns: bool = True) -> None:
    """Have a person call a tool of their own and a shared one, search, miss a tool, and allow something."""
    store.sessions.begin(replace(SESSION, key=session, started_at=at))
    store.sessions.name_person(session, person, learns=learns, at=at)
    call = replace(CALL, session=session, at=at)
    miss = replace(MISS, session=session, at=at, tool="u__shared", noticed="call", call=1)
    store.calls.record([replace(call, tool=ToolId("u__shared")), replace(call, tool=ToolId(f"u__{session}"))], [miss])
    store.discoveries.add(replace(DISCOVERY, session=session, at=at, task=f"task of {session}"))
    store.sessions.add_exposure(replace(EXPOSURE, session=session, at=at))
    store.grants.save("tickets", person, person.encode(), at)
    store.grants.save("mail", person, person.encode(), at)


def of_session(store: Store, session: str) -> tuple[int, int, int, int, bool]:
    """How many calls, misses, searches and lists a session has, and whether it is on record."""
    return (
        len(store.calls.of_session(session, 0.0, 1e12)),
        len([each for each in store.calls.misses() if each.session == session]),
        len(store.discoveries.of_session(session, 0.0, 1e12)),
        len(store.sessions.exposures(session)),
        store.sessions.get(session) is not None,
    )


WHOLE = (2, 1, 1, 1, True)
GONE = (0, 0, 0, 0, False)


@requirement("trust:data:forget-person")
@pytest.mark.parametrize(
    "person", ["oauth:ann", ODD, "%", "_nn", "oauth:a'; DROP TABLE calls; --", "ünï\U0001f600", "Ann "]
)
def test_a_person_is_forgotten_and_nobody_else(person: str, store: Store) -> None:
    others = ["oauth:ben", "oauth:annabel", "oauth:ann%", "x", "Ann", person.upper() + "_"]
    act(store, "s0", person, 100.0)
    act(store, "s1", person, 200.0)
    for number, other in enumerate(others):
        act(store, f"o{number}", other, 150.0 + number)
    store.sessions.name_person("o0", person, learns=True, at=300.0)  # a session is of whom it was first
    dry = store.forgetting.forget(Selection(person=person), dry=True)
    assert of_session(store, "s0") == of_session(store, "s1") == WHOLE
    found = store.forgetting.forget(Selection(person=person))
    assert (found.counts, found.tasks) == (dry.counts, dry.tasks)
    assert dry.counts["calls"] == 4 and dry.counts["session_people"] == 2 and dry.counts["grants"] == 2
    assert set(dry.tasks) == {"task of s0", "task of s1"}
    assert {each.person for each in found.grants} == {person}
    assert of_session(store, "s0") == of_session(store, "s1") == GONE
    assert all(of_session(store, f"o{number}") == WHOLE for number in range(len(others)))
    counts = {each.tool: (each.calls, each.misses) for each in store.calls.usage()}
    assert counts == {"u__shared": (6, 6)} | {f"u__o{number}": (1, 0) for number in range(len(others))}
    assert granted_servers(store, person) == []
    assert all(granted_servers(store, other) == ["mail", "tickets"] for other in others)
    assert person not in {each for each, _ in store.sessions.people().values()}
    assert store.forgetting.forget(Selection(person=person)).counts == {}


@requirement("trust:data:forget-person")
def test_what_a_session_of_a_forgotten_person_still_does_is_not_learned_from(store: Store) -> None:
    act(store, "s0", "oauth:ann", 100.0)
    store.forgetting.forget(Selection(person="oauth:ann"))
    store.calls.record([replace(CALL, session="s0", at=101.0)])
    assert store.sessions.people() == {"s0": ("", False)} and store.calls.usage() == []


@requirement("learn:opt-out")
@pytest.mark.parametrize(
    "selection", [Selection(session="s0"), Selection(before=150.0), Selection(since=50.0), Selection(everything=True)]
)
def test_who_opted_out_stays_so_whatever_is_forgotten(selection: Selection, store: Store) -> None:
    act(store, "s0", "oauth:ann", 100.0, learns=False)
    act(store, "s1", "oauth:ben", 100.0)
    store.forgetting.forget(selection)
    store.calls.record([replace(CALL, session="s0", at=101.0, tool=ToolId("u__late"))])
    assert "u__late" not in {each.tool for each in store.calls.usage()}


def test_a_session_of_which_something_is_left_keeps_its_person(store: Store) -> None:
    act(store, "s0", "oauth:ann", 100.0)
    store.calls.record([replace(CALL, session="s0", at=900.0)])
    assert "session_people" not in store.forgetting.forget(Selection(before=500.0)).counts
    assert store.forgetting.forget(Selection(person="oauth:ann")).counts["calls"] == 1


def test_a_person_and_other_conditions_narrow_each_other(store: Store) -> None:
    act(store, "s0", "oauth:ann", 100.0)
    act(store, "s1", "oauth:ann", 200.0)
    act(store, "s2", "oauth:ben", 100.0)
    found = store.forgetting.forget(Selection(person="oauth:ann", before=150.0))
    assert found.counts["calls"] == 2 and not found.grants
    assert of_session(store, "s1") == of_session(store, "s2") == WHOLE
    found = store.forgetting.forget(Selection(person="oauth:ann", server="mail"))
    assert found.counts == {"grants": 1} and [each.server for each in found.grants] == ["mail"]
    assert granted_servers(store, "oauth:ann") == ["tickets"]
    assert granted_servers(store, "oauth:ben") == ["mail", "tickets"]
    assert len(store.calls.usage()) == 3


def test_calls_that_were_not_counted_yet_are_not_counted_down(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.calls.record([replace(CALL, session="s0"), replace(CALL, session="s1")])
    store.calls.usage()
    fold, late = CallStore.fold_usage, replace(CALL, session="s0", at=99.0)

    def fold_then_record(calls: CallStore) -> None:
        fold(calls)
        monkeypatch.setattr(CallStore, "fold_usage", fold)
        store.calls.record([late])

    monkeypatch.setattr(CallStore, "fold_usage", fold_then_record)
    assert store.forgetting.forget(Selection(session="s0")).counts == {"calls": 2}
    assert [each.calls for each in store.calls.usage()] == [1]
