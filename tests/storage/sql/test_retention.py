"""Old records are deleted in small batches; what stays, stays whole, and the file does not grow for ever."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from requirements import requirement
from stored_records import CALL, DISCOVERY, EXPOSURE, MISS, SESSION, UPSTREAM, connection_of, rows, tool

from foretool.storage.opening import open_store
from foretool.storage.records import ClientRecord, Prompt, StepRecord, Tool, ToolId, UpstreamRecord, WorkingSet
from foretool.storage.sql.retention import MOST_QUERIES
from foretool.storage.steps import finish
from foretool.storage.store import Store

DAY = 86_400.0
TABLES = (
    "calls", "misses", "discoveries", "exposures", "lists", "prompts", "steps", "sessions", "flows", "vectors",
    "working_sets", "clients", "upstreams", "tools", "tool_versions", "definitions",
)  # fmt: skip


def fill(store: Store, at: float, name: str) -> None:
    """One record of each kind."""
    store.sessions.begin(replace(SESSION, key=name, started_at=at, client=name))
    exposure = store.sessions.add_exposure(replace(EXPOSURE, session=name, at=at, tools=(ToolId(name),)))
    discovery = store.discoveries.add(replace(DISCOVERY, session=name, at=at, task=f"task of {name}"))
    call = replace(CALL, session=name, at=at, tool=ToolId(name), discovery=discovery)
    store.calls.record([call], [replace(MISS, at=at, tool=name, exposure=exposure, discovery=discovery, call=1)])
    store.tasks.add_prompt(Prompt(at, f"prompt of {name}"))
    store.tasks.add_step(StepRecord(name, at, name, (), (), 1, 1, 0.5, None, "none", False, "", 1.0))
    store.flows.add({(ToolId(name), ToolId(name), "a", "b"): 1}, at)
    store.vectors.save(name, {name.encode(): b"1234"})
    store.serving.save_working_set(WorkingSet(name, 1, (), b"[]", at))
    store.clients.add_relist(ClientRecord(name, SESSION.version, SESSION.era, 1, 0, 0.0, at))
    upstream = UpstreamRecord(name, "f", "legacy", "{}", "", "{}", at)
    finish(
        store.catalog.save_upstream(
            upstream, [Tool(ToolId(name), name, "t", f'{{"name":"{name}"}}'.encode(), f"h{name}")]
        )
    )
    store.catalog.save_exposed_names({ToolId(name): (name, "t")})
    connection_of(store).execute("UPDATE vectors SET used_at = ? WHERE encoder = ?", (at, name))


def counts(path: Path) -> dict[str, int]:
    return {table: rows(path, f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


@requirement("trust:data:retention")
def test_what_is_older_goes_and_what_is_newer_stays_whole(path: Path) -> None:
    with open_store(path) as store:
        for number in range(3):
            fill(store, 5 * DAY, f"old{number}")
        fill(store, 200 * DAY, "new")
        before = counts(path)
        store.calls.usage()
        assert store.retention.prune(100 * DAY) > 20
        after = counts(path)
        assert set(before.values()) == {4}
        assert set(after.values()) == {1}, after
        (call,), (miss,) = store.calls.recent(-1), store.calls.misses()
        assert store.discoveries.get(call.discovery) is not None and miss.call == call.id
        assert {each.tool for each in store.calls.usage()} == {"old0", "old1", "old2", "new"}
        assert len(store.catalog.exposed_names()) == 4
        assert store.retention.prune(100 * DAY) == 0


@requirement("trust:data:retention")
def test_ids_that_are_given_again_join_nothing_and_usage_goes_on(path: Path) -> None:
    with open_store(path) as store:
        fill(store, DAY, "one")
        fill(store, DAY, "two")
        store.calls.usage()
        store.calls.record([replace(CALL, at=50 * DAY, tool=ToolId("two"), discovery=2)])
        store.retention.prune(10 * DAY)
        assert [call.discovery for call in store.calls.recent(-1)] == [0]
        store.retention.prune(100 * DAY)
        fill(store, 200 * DAY, "two")
        assert {each.tool: each.calls for each in store.calls.usage()} == {"one": 1, "two": 3}


@requirement("trust:data:retention")
def test_many_old_records_go_in_parts_and_their_room_is_given_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with open_store(path) as store:
        store.calls.record([replace(CALL, at=DAY, arguments="x" * 1000)] * 4000)
        store.checkpoint()
        large = path.stat().st_size
        assert store.retention.prune(10 * DAY, 1000) == 1000
        while store.retention.prune(10 * DAY, 1000):
            pass
        assert store.calls.recent(-1) == []
        assert path.stat().st_size < large / 5
        assert len(pauses) < 20, "hundreds of pages are given back between two pauses"
        assert path.with_name(path.name + "-wal").stat().st_size == 0


def test_room_in_a_file_of_an_earlier_version_is_used_again(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as old:
        old.execute("CREATE TABLE filler (a)")
        old.execute("DROP TABLE filler")  # its pages are set up without room being given back
    old.close()
    with open_store(path) as store:
        for start in (0, 1, 2):
            store.calls.record([replace(CALL, at=start * DAY, arguments="x" * 1000)] * 2000)
            store.retention.prune((start + 0.5) * DAY)
            store.checkpoint()
        assert path.stat().st_size < 6_000_000


def test_a_row_that_was_deleted_is_overwritten(path: Path) -> None:
    with open_store(path) as store:
        store.tasks.add_prompt(Prompt(DAY, "the purple elephant"))
        store.retention.prune(10 * DAY)
        for each in path.parent.iterdir():
            assert b"purple elephant" not in each.read_bytes()


def test_of_several_proxies_one_has_its_turn(store: Store) -> None:
    assert store.retention.take_turn(100.0, 200)
    assert not store.retention.take_turn(150.0, 250)
    assert store.retention.take_turn(201.0, 300)


def test_vectors_in_use_are_touched_once_half_their_time_is_over(store: Store) -> None:
    store.vectors.save("e", {b"a": b"1234", b"b": b"1234"})
    connection_of(store).execute("UPDATE vectors SET used_at = 5")
    store.retention.touch_vectors([b"a"], 100.0, 50.0)
    store.retention.prune(50.0)
    assert store.vectors.known("e") == {b"a"}


def test_of_the_vectors_of_queries_those_used_last_stay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for count, encoder in ((MOST_QUERIES, "e#query"), (5, "f#query"), (2, "e")):
        store.vectors.save(encoder, {number.to_bytes(4): b"1234" for number in range(count)})
        connection_of(store).execute(f"UPDATE vectors SET used_at = {count} WHERE encoder = '{encoder}'")
    store.retention.prune(0.0)
    assert [len(store.vectors.known(each)) for each in ("e#query", "f#query", "e")] == [MOST_QUERIES, 0, 2]


@pytest.mark.parametrize("changed", [False, True])
def test_the_first_text_of_a_tool_stays_while_its_server_is_known(changed: bool, store: Store) -> None:
    finish(store.catalog.save_upstream(UPSTREAM, [tool("a", "first")]))
    finish(
        store.catalog.save_upstream(replace(UPSTREAM, listed_at=200 * DAY if changed else 5.0), [tool("a", "second")])
    )
    store.retention.prune(100 * DAY)
    assert len(store.catalog.versions("git", "a")) == (2 if changed else 0)
