"""The catalog comes back as it was saved, and keeps what tools were before."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from stored_records import UPSTREAM, tool

from foretool.storage.records import Selection, ToolId, ToolVersion
from foretool.storage.sql import catalog
from foretool.storage.sql.catalog import KEPT_VERSIONS, SAVED_AT_ONCE
from foretool.storage.steps import finish
from foretool.storage.store import Store


def test_the_catalog_comes_back_in_the_requested_order_of_upstreams_and_the_listed_order_of_tools(store: Store) -> None:
    slack = replace(UPSTREAM, name="slack", era=None)
    finish(store.catalog.save_upstream(UPSTREAM, [tool("log"), tool("blame", tokens=40)]))
    finish(store.catalog.save_upstream(slack, [tool("post", upstream="slack")]))
    assert store.catalog.load([("slack", "f1"), ("gone", "f1"), ("git", "f1")]) == [
        (slack, [tool("post", upstream="slack")]),
        (UPSTREAM, [tool("log"), tool("blame", tokens=40)]),
    ]


def test_an_upstream_name_with_two_fingerprints_is_two_upstreams(store: Store) -> None:
    other = replace(UPSTREAM, fingerprint="f2", listed_at=6.0)
    finish(store.catalog.save_upstream(UPSTREAM, [tool("log")]))
    finish(store.catalog.save_upstream(other, [tool("diff")]))
    assert store.catalog.load([("git", "f1")]) == [(UPSTREAM, [tool("log")])]
    assert store.catalog.load([("git", "f2")]) == [(other, [tool("diff")])]


def test_saving_an_upstream_replaces_its_tools_and_their_order(store: Store) -> None:
    a, b, c = tool("a"), tool("b"), tool("c")
    finish(store.catalog.save_upstream(UPSTREAM, [a, b]))
    finish(store.catalog.save_upstream(UPSTREAM, [c, tool("b", "new")]))
    assert store.catalog.load([("git", "f1")]) == [(UPSTREAM, [c, tool("b", "new")])]
    assert store.catalog.changed_tools() == {("git", "b")}
    finish(store.catalog.save_upstream(UPSTREAM, [tool("b", "new"), c]))
    assert store.catalog.load([("git", "f1")]) == [(UPSTREAM, [tool("b", "new"), c])]


def test_every_version_of_a_tool_is_kept(store: Store) -> None:
    old, new = tool("log", "h1", tokens=10), tool("log", "h2")
    for at, fingerprint, definition in [(1.0, "f1", old), (2.0, "f2", new), (3.0, "f2", old), (4.0, "f2", new)]:
        finish(store.catalog.save_upstream(replace(UPSTREAM, fingerprint=fingerprint, listed_at=at), [definition]))
    assert store.catalog.versions("git", "log") == [
        ToolVersion("h1", old.definition, 10, 1.0),
        ToolVersion("h2", new.definition, None, 2.0),
    ]
    assert store.catalog.versions("git", "blame") == []


def test_of_a_tool_that_changes_all_the_time_the_latest_definitions_are_kept(store: Store) -> None:
    other = tool("blame", "same")
    for at in range(KEPT_VERSIONS + 15):
        listed = [tool("log", f"h{at}"), other]
        finish(store.catalog.save_upstream(replace(UPSTREAM, listed_at=float(at)), listed))
    kept = [version.schema_hash for version in store.catalog.versions("git", "log")]
    assert kept == [f"h{at}" for at in range(15, KEPT_VERSIONS + 15)]
    assert len(store.catalog.versions("git", "blame")) == 1
    # A definition that comes back after a long time is the present one, and stays.
    finish(store.catalog.save_upstream(replace(UPSTREAM, listed_at=100.0), [tool("log", "h15"), other]))
    finish(store.catalog.save_upstream(replace(UPSTREAM, listed_at=101.0), [tool("log", "h15"), tool("blame", "new")]))
    assert store.catalog.versions("git", "log")[0].schema_hash == "h15"


def test_token_counts_belong_to_the_definition(store: Store) -> None:
    finish(store.catalog.save_upstream(UPSTREAM, [tool("log", "h1")]))
    store.catalog.save_token_counts({"h1": 55, "never seen": 1})
    finish(store.catalog.save_upstream(replace(UPSTREAM, fingerprint="f2"), [tool("log", "h1")]))
    assert [record.tokens for _, tools in store.catalog.load([("git", "f1"), ("git", "f2")]) for record in tools] == [
        55,
        55,
    ]


def test_tool_heads_come_at_once_and_tools_come_by_name(store: Store) -> None:
    slack = replace(UPSTREAM, name="slack", fingerprint="f2")
    log, post = tool("log"), tool("post", upstream="slack", tokens=40)
    finish(store.catalog.save_upstream(UPSTREAM, [log]))
    finish(store.catalog.save_upstream(slack, [post]))
    head = log.definition[:9]
    assert store.catalog.tool_heads([("git", "f1")], 9) == [("git", log.id, "log", head)]
    assert [each[1] for each in store.catalog.tool_heads([("slack", "f2"), ("git", "f1")], 9)] == [log.id, post.id]
    assert store.catalog.tool_heads([("git", "f9")], 9) == []
    wanted = [("post", "slack", "f2"), ("nothing", "git", "f1"), ("log", "git", "f1")]
    assert store.catalog.tools_named(wanted) == [post, log]
    assert store.catalog.tools_named([("log", "git", "f2")]) == []


def test_a_list_saved_in_steps_is_read_whole_or_not_at_all(store: Store) -> None:
    old, new = ([tool(f"t{at}", f"{age}{at}") for at in range(5 * SAVED_AT_ONCE // 2)] for age in ("old", "new"))
    finish(store.catalog.save_upstream(UPSTREAM, old))
    later = replace(UPSTREAM, listed_at=UPSTREAM.listed_at + 1.0)
    seen = []
    for _ in store.catalog.save_upstream(later, new):
        seen.append(store.catalog.load([("git", "f1")]))
    assert len(seen) == 3 + 1 + 3  # the definitions in three parts, the list, and old definitions in three parts
    assert all(each == [(UPSTREAM, old)] for each in seen[:4])
    assert all(each == [(later, new)] for each in seen[4:])
    assert store.catalog.load([("git", "f1")]) == [(later, new)]
    assert len(store.catalog.versions("git", "t7")) == 2


def test_a_long_list_is_written_beside_the_one_that_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "CHANGED_AT_ONCE", 100)
    old, new = ([tool(f"t{at}", f"{age}{at}") for at in range(250)] for age in ("old", "new"))
    later = replace(UPSTREAM, listed_at=UPSTREAM.listed_at + 1.0)
    slack = replace(UPSTREAM, name="slack", fingerprint="f2")
    finish(store.catalog.save_upstream(slack, [tool("post", upstream="slack")]))
    finish(store.catalog.save_upstream(UPSTREAM, old))
    seen = []
    for _ in store.catalog.save_upstream(later, new):
        seen.append(store.catalog.load([("git", "f1")]))
        changes = store.catalog.changes()
    assert seen[0] == [(UPSTREAM, old)]
    assert seen[-1] == [(later, new)]
    assert all(each in ([(UPSTREAM, old)], [(later, new)]) for each in seen)  # never a part
    assert store.catalog.changes() == changes
    assert store.statistics().upstreams == 2
    assert store.catalog.load([("slack", "f2")]) == [(slack, [tool("post", upstream="slack")])]
    finish(store.catalog.save_upstream(replace(later, listed_at=later.listed_at + 1.0), new[:3]))
    assert store.catalog.load([("git", "f1")])[0][1] == new[:3]


def count_rows(store: Store) -> tuple[int, int]:
    found = store.forgetting.forget(Selection(everything=True), dry=True).counts
    return found["upstreams"], found["tools"]


def test_a_long_list_that_was_broken_off_is_deleted_with_a_later_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "CHANGED_AT_ONCE", 100)
    tools = [tool(f"t{at}", f"h{at}") for at in range(250)]
    steps = store.catalog.save_upstream(UPSTREAM, tools)
    for _ in range(5):  # the definitions, and a part of the list
        next(steps)
    steps.close()
    assert store.catalog.load([("git", "f1")]) == []
    assert (store.statistics().upstreams, store.statistics().tools) == (1, 100)
    soon = replace(UPSTREAM, listed_at=UPSTREAM.listed_at + 1.0)
    finish(store.catalog.save_upstream(soon, tools))  # somebody may still write the other one
    assert count_rows(store) == (2, 350)
    assert (store.statistics().upstreams, store.statistics().tools) == (1, 250), "each tool counts once"
    late = replace(UPSTREAM, listed_at=UPSTREAM.listed_at + 2 * catalog.LEFT_S)
    changed = [tool(f"t{at}", f"new{at}") for at in range(250)]
    finish(store.catalog.save_upstream(late, changed))
    assert count_rows(store) == (1, 250)
    assert store.catalog.load([("git", "f1")]) == [(late, changed)]


def test_a_list_whose_saving_was_broken_off_is_saved_the_next_time(store: Store) -> None:
    tools = [tool(f"t{at}", f"h{at}", tokens=at) for at in range(2 * SAVED_AT_ONCE)]
    steps = store.catalog.save_upstream(UPSTREAM, tools)
    next(steps)
    next(steps)
    del steps
    assert store.catalog.load([("git", "f1")]) == []
    finish(store.catalog.save_upstream(UPSTREAM, tools))
    assert store.catalog.load([("git", "f1")]) == [(UPSTREAM, tools)]


def test_an_exposed_name_keeps_its_first_meaning(store: Store) -> None:
    log, diff = ToolId("git__log"), ToolId("git__diff")
    assert store.catalog.save_exposed_names({log: ("git", "log")}) == {}
    assert store.catalog.save_exposed_names({log: ("git2", "log"), diff: ("git", "diff")}) == {log: ("git", "log")}
    assert store.catalog.exposed_names() == {log: ("git", "log"), diff: ("git", "diff")}


def test_whatever_changes_a_tool_or_a_name_is_counted(store: Store) -> None:
    finish(store.catalog.save_upstream(UPSTREAM, [tool("log"), tool("blame")]))
    before = store.catalog.changes()
    if before is None:
        return  # this engine does not count
    # The same list again, token counts and another time of the list change no tool and no name.
    finish(store.catalog.save_upstream(replace(UPSTREAM, listed_at=9.0), [tool("log"), tool("blame")]))
    store.catalog.save_token_counts({tool("log").schema_hash: 7})
    assert store.catalog.changes() == before
    edits: list[Callable[[], object]] = [
        lambda: finish(store.catalog.save_upstream(UPSTREAM, [tool("blame"), tool("log")])),
        lambda: finish(store.catalog.save_upstream(UPSTREAM, [tool("log", "new"), tool("blame")])),
        lambda: store.catalog.save_exposed_names({ToolId("git__log"): ("git", "log")}),
        lambda: finish(store.catalog.save_upstream(replace(UPSTREAM, name="slack"), [tool("post", upstream="slack")])),
        lambda: finish(store.catalog.save_upstream(UPSTREAM, [tool("log")])),
    ]
    for edit in edits:
        before = store.catalog.changes()
        edit()
        assert store.catalog.changes() != before, edit
