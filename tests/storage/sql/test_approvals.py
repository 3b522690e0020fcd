"""Definitions of servers are approved, held and blocked, version by version."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from stored_records import UPSTREAM, forget_approvals

from foretool.storage.opening import open_store
from foretool.storage.records import Approval, Definition, FirstSight, HeldHead, Tool, ToolId
from foretool.storage.sql.approvals import KEPT_APPROVALS, WRITTEN_AT_ONCE, ApprovalStore
from foretool.storage.sqlite.database import SqliteDatabase
from foretool.storage.steps import Steps, finish
from foretool.storage.store import Store

LAUNCH = Definition("git", "launch", "", "f1", b"{}", "approved", 1.0, fingerprint="f1", version="1")
LOG = Definition("git", "tool", "log", "h1", b'{"name":"log"}', "approved", 1.0, "git__log", "f1", "1")
NEW_LOG = replace(LOG, hash="h2", value=b'{"name":"log","description":"x"}', state="held", version="2", effect="kept")


def test_the_first_of_two_proxies_decides_what_was_seen_first(path: Path) -> None:
    with open_store(path) as one, open_store(path) as other:
        assert finish(one.approvals.add_first([LAUNCH, LOG])) == "kept"
        assert (
            finish(other.approvals.add_first([replace(LAUNCH, hash="f2"), replace(NEW_LOG, state="approved")]))
            == "known"
        )
        assert [each.hash for each in other.approvals.heads("git", "tool")] == ["h1"]
        assert other.approvals.approved("git", "tool", "log") == [LOG]


def named(number: int, state: Approval = "approved") -> Definition:
    return replace(LOG, name=f"t{number}", hash=f"h{number}", state=state)


def test_many_definitions_are_seen_first_in_parts_and_the_first_of_them_comes_last(store: Store) -> None:
    approvals, many = store.approvals, [named(number) for number in range(3 * WRITTEN_AT_ONCE)]
    steps, kept = approvals.add_first([LAUNCH, *many]), []
    for _ in steps:
        assert approvals.heads("git", "launch") == []  # so nobody takes a part for the whole
        kept.append(len(approvals.heads("git", "tool")))
    assert kept == [WRITTEN_AT_ONCE, 2 * WRITTEN_AT_ONCE]
    assert [each.hash for each in approvals.heads("git", "launch")] == ["f1"]
    assert len(approvals.heads("git", "tool")) == len(many)
    first = approvals.heads("git", "tool", most=2)
    assert [each.name for each in first] == ["t0", "t1"]
    assert [each.name for each in approvals.heads("git", "tool", (first[1].name, first[1].hash), 2)] == ["t10", "t100"]


def test_a_first_sight_that_was_broken_off_is_made_again_and_undoes_no_decision(store: Store) -> None:
    approvals, many = store.approvals, [named(number) for number in range(2 * WRITTEN_AT_ONCE)]
    steps = approvals.add_first([LAUNCH, *many])
    next(steps)
    steps.close()
    assert approvals.heads("git", "launch") == []
    assert approvals.decide([many[-1]], "blocked") == []
    assert finish(approvals.add_first([LAUNCH, *many])) == "kept"
    states = [each.state for each in approvals.heads("git", "tool")]
    assert (states.count("approved"), states.count("blocked")) == (len(many) - 1, 1)
    assert finish(approvals.add_first([LAUNCH, named(-1)])) == "known"


def listing(*numbers: int, state: Approval = "approved", edition: str = "") -> list[Definition]:
    """Return what is seen first of a server with these tools, each of this edition."""
    return [LAUNCH, *(replace(named(number, state), hash=f"h{number}{edition}") for number in numbers)]


def kept(store: Store) -> list[tuple[str, str]]:
    return [(each.hash, each.state) for each in store.approvals.heads("git", "tool")]


MANY = range(3 * WRITTEN_AT_ONCE + 5)


def begin(store: Store, definitions: list[Definition], steps: int) -> None:
    """Write so many steps of a first list, as a process does that is then killed."""
    begun = store.approvals.add_first(definitions)
    for _ in range(steps):
        next(begun)
    begun.close()


@pytest.mark.parametrize("steps", range(1, 4))
def test_of_a_first_list_that_was_broken_off_nothing_counts_once_another_one_is_seen(path: Path, steps: int) -> None:
    small, large = listing(1, 2, edition="b"), listing(*MANY, edition="b")
    for again in (small, large):
        with open_store(path) as store:
            forget_approvals(store, "git")
            begin(store, listing(*MANY, edition="a"), steps)
            # The process that takes its place may be killed as well, and a third one sees the list of the first.
            begin(store, large, steps)
        with open_store(path) as store:
            assert finish(store.approvals.add_first(again)) == "kept"
            assert sorted(kept(store)) == sorted((each.hash, each.state) for each in again[1:])
            assert store.approvals.heads("git", "begun") == []


@pytest.mark.parametrize("steps", range(1, 4))
def test_of_two_proxies_that_see_other_lists_at_once_one_decides(place: str, path: Path, steps: int) -> None:
    shared = path if place == ":memory:" else place
    with open_store(shared) as one, open_store(shared) as other:
        first = one.approvals.add_first(listing(*MANY, edition="a"))
        for _ in range(steps):
            next(first)
        second = other.approvals.add_first(listing(*MANY, edition="b"))
        next(second)
        outcomes: list[FirstSight] = []

        def go_on(steps: Steps[FirstSight]) -> Steps[None]:
            outcomes.append((yield from steps))

        turns = [go_on(first), go_on(second)]
        while turns:
            turns = [each for each in turns if next(each, "ended") != "ended"]
        assert outcomes == ["lost", "kept"]
        assert {each for each, _ in kept(one)} == {f"h{number}b" for number in MANY}
        assert finish(one.approvals.add_first(listing(*MANY, edition="a"))) == "known"


def test_two_proxies_that_see_the_same_list_at_once_write_it_together(path: Path) -> None:
    with open_store(path) as one, open_store(path) as other:
        first = one.approvals.add_first(listing(*MANY))
        next(first)
        assert finish(other.approvals.add_first(listing(*MANY))) == "kept"
        assert finish(first) == "known"
        assert len(kept(one)) == len(MANY)


def test_what_waits_in_one_first_list_is_not_approved_by_an_earlier_one_that_was_broken_off(store: Store) -> None:
    begin(store, listing(*MANY), 2)
    assert finish(store.approvals.add_first(listing(*MANY, state="held"))) == "kept"
    assert {state for _, state in kept(store)} == {"held"}


def test_a_server_that_is_forgotten_while_its_first_list_is_written_is_seen_first_again(store: Store) -> None:
    first = store.approvals.add_first(listing(*MANY))
    next(first)
    forget_approvals(store, "git")
    assert finish(first) == "lost"
    assert kept(store) == []


def test_many_definitions_are_held_and_released_in_parts(store: Store) -> None:
    approvals, many = store.approvals, [named(number, "held") for number in range(3 * WRITTEN_AT_ONCE)]
    finish(approvals.add_first([LAUNCH, LOG]))
    assert len(list(approvals.hold("git", ["tool"], many))) == 3
    assert len(approvals.held("git")) == len(many)
    assert approvals.decide(many[:1], "approved") == []
    list(approvals.hold("git", ["tool"], [many[1], NEW_LOG]))
    assert {each.hash for each in approvals.held("git")} == {"h1", "h2"}
    list(approvals.hold("git", ["tool"], []))
    assert approvals.held("git") == []
    assert {each.hash for each in approvals.heads("git", "tool")} == {"h0", "h1"}  # `LOG` has the hash of `t1`


def test_what_is_held_is_replaced_and_never_undoes_a_decision(store: Store) -> None:
    approvals = store.approvals
    finish(approvals.add_first([LAUNCH, LOG]))
    finish(approvals.hold("git", ["tool"], [NEW_LOG]))
    later = replace(NEW_LOG, hash="h3")
    finish(approvals.hold("git", ["tool"], [later]))
    finish(approvals.hold("git", ["prompt"], []))
    assert approvals.undecided("git") == [later]
    assert approvals.decide([NEW_LOG], "approved") == [NEW_LOG]
    assert approvals.decide([later], "blocked") == []
    finish(approvals.hold("git", ["tool"], [later]))
    assert [each.state for each in approvals.undecided()] == ["blocked"]
    assert approvals.undecided("other") == []


def test_what_is_held_is_read_without_its_values(store: Store) -> None:
    approvals = store.approvals
    finish(approvals.add_first([LAUNCH, LOG]))
    finish(approvals.add_first([replace(LAUNCH, server="calc"), replace(LOG, server="calc")]))
    finish(approvals.hold("git", ["tool"], [NEW_LOG]))
    finish(
        approvals.hold("calc", ["tool"], [replace(NEW_LOG, server="calc"), replace(NEW_LOG, server="calc", name="all")])
    )
    assert approvals.held("git") == [HeldHead("git", "tool", "log", "h2", "kept")]
    assert [(each.server, each.name) for each in approvals.held()] == [("calc", "all"), ("calc", "log"), ("git", "log")]
    assert [(each.server, each.name) for each in approvals.undecided()] == [
        ("calc", "all"), ("calc", "log"), ("git", "log"),
    ]  # fmt: skip
    approvals.decide([NEW_LOG], "blocked")
    assert approvals.held("git") == []
    assert len(approvals.undecided("git")) == 1


@pytest.mark.parametrize("server", [None, "s1"])
def test_what_nobody_has_decided_is_found_without_walking_over_what_was_approved(
    path: Path, server: str | None
) -> None:
    with open_store(path) as store:
        for number in range(30):
            name = f"s{number}"
            finish(store.approvals.add_first([replace(LAUNCH, server=name)]))
            tools = [replace(LOG, server=name, name=f"t{at}", value=b"x" * 500) for at in range(40)]
            store.approvals.approve_listed(tools)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        approvals, steps = ApprovalStore(SqliteDatabase(connection, path, 0)), [0]
        approvals.heads("s0", "launch")  # reads the schema, which takes hundreds of steps

        def step() -> None:
            steps[0] += 1

        connection.set_progress_handler(step, 1)
        assert approvals.held(server) == []
        assert approvals.undecided(server) == []
    assert steps[0] < 200, "the virtual machine of SQLite took a step or more for each approved row"


def test_the_kept_catalog_follows_a_decision(store: Store) -> None:
    tool = Tool(ToolId("git__log"), "git", "log", LOG.value, LOG.hash)
    finish(store.catalog.save_upstream(UPSTREAM, [tool]))
    approvals, key = store.approvals, [("git", "f1")]
    words = Definition("git", "instructions", "", "i", b"New words.", fingerprint="f1")
    diff = Definition("git", "tool", "diff", "h4", b'{"name":"diff"}', exposed="git__diff", fingerprint="f1")
    finish(approvals.add_first([LAUNCH, LOG]))
    finish(approvals.hold("git", ["tool", "instructions"], [NEW_LOG, words, diff]))
    before = approvals.version
    assert approvals.decide([NEW_LOG, words, diff], "approved") == []
    assert approvals.decided_since(before) == {"git"}
    assert approvals.decided_since(approvals.version) == set()
    ((record, tools),) = store.catalog.load(key)
    assert record.instructions == "New words."
    assert [(each.id, each.schema_hash) for each in tools] == [("git__log", "h2"), ("git__diff", "h4")]
    assert [each.version for each in approvals.approved("git", "launch")] == ["2"]
    approvals.decide([diff, words], "blocked")
    ((record, tools),) = store.catalog.load(key)
    assert (record.instructions, [each.name for each in tools]) == ("", ["log"])


def test_what_was_looked_at_is_known_until_a_decision(store: Store) -> None:
    finish(store.approvals.add_first([LAUNCH, LOG]))
    other = replace(NEW_LOG, hash="h3")
    finish(store.approvals.hold("git", ["tool"], [NEW_LOG, other]))
    assert store.approvals.shown("git") is None
    store.approvals.note_shown("git", {"h1", "h2"})
    store.approvals.note_shown("git", {"h2", "h3"})
    assert store.approvals.shown("git") == {"h2", "h3"}
    store.approvals.decide([NEW_LOG], "blocked")
    assert store.approvals.shown("git") == {"h2", "h3"}
    store.approvals.decide([other], "approved")
    assert store.approvals.shown("git") is None


def test_nothing_is_served_in_place_of_what_is_refused(store: Store) -> None:
    new = Definition("git", "tool", "diff", "h4", b"{}", exposed="git__diff")
    finish(store.approvals.add_first([LAUNCH, LOG]))
    finish(store.approvals.hold("git", ["tool"], [NEW_LOG, new]))
    assert store.approvals.refused("tool") == [("git", "git__diff", "diff")]
    finish(store.approvals.hold("git", ["tool"], [replace(NEW_LOG, effect="withheld")]))
    assert store.approvals.refused("tool") == [("git", "git__log", "log")]


def test_a_setting_approves_all_but_what_was_blocked_and_keeps_the_newest(store: Store) -> None:
    approvals = store.approvals
    finish(approvals.add_first([LAUNCH, LOG]))
    finish(approvals.hold("git", ["tool"], [NEW_LOG]))
    approvals.decide([NEW_LOG], "blocked")
    versions = [replace(LOG, hash=f"v{number}", seen_at=10.0 + number) for number in range(2 * KEPT_APPROVALS)]
    approvals.approve_listed([NEW_LOG, *versions])
    kept = [each.hash for each in approvals.approved("git", "tool", "log")]
    assert kept == [each.hash for each in reversed(versions)][:KEPT_APPROVALS]
    assert [each.state for each in approvals.undecided()] == ["blocked"]
