"""Tools that are in the store alone come one by one, in parts, and only if they are those of the summary."""

from __future__ import annotations

from fakes import FakeUpstream, config_of
from msgspec.structs import replace
from stored_records import UPSTREAM, tool

from foretool.server.catalog.unread import (
    PAGE,
    ServerSummary,
    Source,
    Summary,
    Unread,
    digest_inputs,
    digest_stored,
    read_summary,
)
from foretool.storage.records import ToolId
from foretool.storage.steps import finish
from foretool.storage.store import Store

LISTED = [tool(f"log_{place}", f"h{place}") for place in range(PAGE + 5)]


def unread_over(store: Store) -> Unread:
    finish(store.catalog.save_upstream(UPSTREAM, LISTED))
    store.catalog.save_exposed_names({each.id: ("git", each.name) for each in LISTED})
    said = ServerSummary(len(LISTED), b"", digest_stored(LISTED), has_pages=False)
    return Unread(Summary({"git": said}, (), {}, {}), Source(store.catalog, {"git": UPSTREAM.fingerprint}))


def test_one_tool_is_read_by_the_name_that_it_has_now(store: Store) -> None:
    unread = unread_over(store)
    assert unread.get(LISTED[3].id) == LISTED[3]
    assert unread.get(ToolId("git__gone")) is None
    store.catalog.save_exposed_names({ToolId("before"): ("git", LISTED[4].name)})
    assert unread.get(ToolId("before")) is None  # an older name, which the catalog resolves
    del unread.servers["git"]
    assert unread.get(LISTED[3].id) is None  # the catalog has it


def test_names_that_do_not_exist_take_no_memory(store: Store) -> None:
    unread = unread_over(store)
    assert not any(unread.get(ToolId(f"git__none_{at}")) for at in range(1_000))
    assert unread._known == {}
    # A tool is read once, and one that came since is found.
    assert unread.get(LISTED[3].id) is unread.get(LISTED[3].id)
    finish(store.catalog.save_upstream(UPSTREAM, [*LISTED, late := tool("none_7", "h")]))
    store.catalog.save_exposed_names({late.id: ("git", late.name)})
    assert unread.get(late.id) == late


def test_a_tool_of_another_fingerprint_is_another_tool(store: Store) -> None:
    unread = unread_over(store)
    other = replace(tool("log_1", "other"), id=LISTED[1].id)
    finish(store.catalog.save_upstream(replace(UPSTREAM, fingerprint="f2"), [other]))
    assert unread.get(LISTED[1].id) == LISTED[1]


def test_the_tools_of_a_server_are_read_in_parts_and_compared_with_the_summary(store: Store) -> None:
    unread = unread_over(store)
    assert sum(1 for _ in unread.read("git")) == 2
    found = finish(unread.read("git"))
    assert found == LISTED
    assert unread.fits("git", found)
    assert not unread.fits("git", found[1:])
    assert not unread.fits("git", [replace(found[0], schema_hash="new"), *found[1:]])
    assert not unread.fits("git", [replace(found[0], id=ToolId("other")), *found[1:]])


def test_a_summary_that_cannot_be_read_is_none(store: Store) -> None:
    assert read_summary(store.catalog, "these") is None
    if (changes := store.catalog.changes()) is not None:
        store.catalog.save_summary("these", changes, b'[{"git":1}]')
        assert read_summary(store.catalog, "these") is None
    store.close()
    assert read_summary(store.catalog, "these") is None


def test_whatever_tools_and_names_follow_from_makes_another_digest() -> None:
    def digest(*made: FakeUpstream) -> str:
        config = config_of(*made)
        return digest_inputs(list(config.servers.values()), config.prefixes, dict.fromkeys(config.servers, "f"))

    one, two = FakeUpstream("one"), FakeUpstream("two")
    entries = [
        {}, {"prefix": "p"}, {"include": ["a"]}, {"exclude": ["a"]}, {"pin": ["a"]}, {"tools": {"a": {"hidden": True}}},
        {"tools": {"a": {"name": "b"}}},
    ]  # fmt: skip
    digests = {digest(one, two), digest(two, one), digest(one)}
    digests |= {digest(FakeUpstream("one", entry=entry), two) for entry in entries}
    assert len(digests) == 3 + len(entries) - 1
    assert digest(one, two) == digest(FakeUpstream("one", entry={"timeout_s": 7, "description": "other"}), two)
