"""Approvals as one proxy reads and writes them, while its store works and while it does not."""

from __future__ import annotations

import sqlite3

import pytest
from fakes import failing_store
from msgspec.structs import replace

from foretool.server.trust.ledger import AGAIN_S, RETRY_S, ApprovalLedger
from foretool.storage.engine import StorageError
from foretool.storage.records import Definition
from foretool.storage.steps import finish

LAUNCH = Definition("w", "launch", "", "f", b"{}", "approved", fingerprint="f")
OLD = Definition("w", "tool", "a", "old", b"{}", "approved")
NEW = Definition("w", "tool", "a", "new", b"{}", effect="kept")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_what_was_seen_first_is_kept_in_memory_until_it_can_be_written() -> None:
    store, connection = failing_store()
    clock = Clock()
    ledger = ApprovalLedger(lambda: store.approvals, lambda: {"w"}, clock)
    connection.refuse = sqlite3.SQLITE_FULL
    finish(ledger.add_first([LAUNCH, OLD]))
    assert not ledger.is_seen("w", "launch")
    assert finish(ledger.known("w", "tool"))[0] == {"a": ["old"]}
    assert ledger.approved("w", "tool", "a") == [OLD]
    assert ledger.due() == {"w"}
    assert ledger.due() == set()
    connection.refuse = 0
    clock.now += AGAIN_S[1]
    finish(ledger.add_first([LAUNCH, NEW]))  # what was seen first counts, not what is listed now
    assert ledger.is_seen("w", "launch")
    assert [each.hash for each in store.approvals.heads("w", "tool")] == ["old"]


def test_a_store_that_cannot_be_read_says_what_it_said_last() -> None:
    store, connection = failing_store()
    ledger = ApprovalLedger(lambda: store.approvals, lambda: {"w"}, Clock())
    finish(store.approvals.add_first([LAUNCH, OLD]))
    assert finish(ledger.known("w", "tool"))[0] == {"a": ["old"]}
    connection.close()
    assert finish(ledger.known("w", "tool"))[0] == {"a": ["old"]}
    with pytest.raises(StorageError):
        finish(ledger.known("other", "tool"))
    assert ledger.refused("tool") == []
    assert ledger.waiting() == {}
    assert ledger.look() == set()


def test_a_server_that_changes_all_the_time_is_written_and_logged_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, _ = failing_store()
    clock = Clock()
    ledger = ApprovalLedger(lambda: store.approvals, lambda: {"w"}, clock)
    finish(ledger.add_first([LAUNCH, OLD]))
    for number in range(5):
        finish(ledger.hold("w", ["tool"], [Definition("w", "tool", "a", f"new {number}", b"{}")]))
    assert [each.hash for each in store.approvals.undecided()] == ["new 0"]
    assert ledger.due() == {"w"}
    assert len(caplog.records) == 1
    clock.now += RETRY_S
    finish(ledger.hold("w", ["tool"], [NEW]))
    assert [each.hash for each in store.approvals.undecided()] == ["new"]
    assert ledger.waiting()["w"][0] == {"new"}


def test_a_decision_is_seen_at_the_next_look() -> None:
    store, _ = failing_store()
    ledger = ApprovalLedger(lambda: store.approvals, lambda: {"w"}, Clock())
    finish(ledger.add_first([LAUNCH, OLD]))
    finish(ledger.hold("w", ["tool"], [NEW]))
    assert ledger.look() == set()
    store.approvals.decide([NEW], "approved")
    assert ledger.look() == {"w"}
    assert ledger.look() == set()
    assert ledger.waiting() == {}


def test_of_what_waits_only_servers_that_hold_something_else_are_read_again() -> None:
    store, _ = failing_store()
    clock = Clock()
    ledger = ApprovalLedger(lambda: store.approvals, lambda: {"w", "v"}, clock)
    for server in ("w", "v", "gone"):
        finish(ledger.add_first([replace(LAUNCH, server=server), replace(OLD, server=server)]))
        finish(ledger.hold(server, ["tool"], [replace(NEW, server=server)]))
    assert {server: hashes for server, (hashes, _) in ledger.waiting().items()} == {"w": {"new"}, "v": {"new"}}
    clock.now += RETRY_S
    finish(ledger.hold("w", ["tool"], [replace(NEW, hash="newer")]))
    finish(store.approvals.hold("v", ["tool"], []))  # by another proxy, which is seen with the next change or decision
    assert {server: hashes for server, (hashes, _) in ledger.waiting().items()} == {"w": {"newer"}, "v": {"new"}}
    clock.now += RETRY_S
    finish(ledger.hold("w", ["tool"], []))
    assert ledger.waiting().keys() == {"v"}


def test_a_setting_approves_again_what_could_not_be_written() -> None:
    store, connection = failing_store()
    ledger = ApprovalLedger(lambda: store.approvals, lambda: {"w"}, Clock())
    finish(ledger.add_first([LAUNCH, OLD]))
    connection.refuse = sqlite3.SQLITE_BUSY
    finish(ledger.approve_all("w", [NEW], LAUNCH))
    connection.refuse = 0
    assert ledger.due() == {"w"}
    finish(ledger.approve_all("w", [NEW], LAUNCH))
    assert {each.hash for each in store.approvals.heads("w", "tool")} == {"old", "new"}
