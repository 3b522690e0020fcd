"""What a user selects is deleted wherever it stands; the rest stays whole."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from requirements import requirement
from stored_records import connection_of, rows

from foretool.storage.opening import open_store
from foretool.storage.records import Episode, Selection, ToolId
from foretool.storage.stores import Store
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
    assert {"calls", "misses", "exposures", "lists", "flows"} <= gone
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
    assert both.artifacts.history() == [] and both.artifacts.demonstrations() == []
    assert both.calls.usage() == []
    fill(both, 300.0, "bank")
    assert [each.calls for each in both.calls.usage()] == [1]
    assert len(both.catalog.exposed_names()) == 2
    both.close()


def test_numbers_of_calls_follow_what_is_deleted(both: Store) -> None:
    both.forgetting.forget(Selection(session="bank"))
    # The miss is of another session.
    assert sorted((each.tool, each.calls, each.misses) for each in both.calls.usage()) == [
        ("bank", 0, 1), ("mail", 1, 1),
    ]  # fmt: skip
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
        "consents", "session_people", "catalog_summaries", "wordings",
    }  # fmt: skip
    found = {name for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert found - known == set(), "say in retention.py and forgetting.py what becomes of the new table"
