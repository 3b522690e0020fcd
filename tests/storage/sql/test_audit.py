"""The audit log: what was added comes back, and nothing of it can be changed, whatever an engine is asked."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace
from requirements import requirement

from foretool.storage.engine import StorageError
from foretool.storage.records import AuditEntry, AuditFilter, Selection
from foretool.storage.sql import people
from foretool.storage.store import Store

CALL = AuditEntry(10.0, "oauth:1", "ann", "cursor", "work", "call", "git__push", "ok", session="s1")
DECISION = AuditEntry(20.0, "user:1000", "bob", "", "", "decide", "git", "approved", "tool push 0a1b2c")


@requirement("trust:audit")
def test_entries_come_back_as_they_were(store: Store) -> None:
    store.audit.add([CALL, DECISION])
    store.audit.add([])
    first, second = replace(CALL, id=1), replace(DECISION, id=2)
    assert store.audit.find(AuditFilter()) == [second, first]
    assert store.audit.find(AuditFilter(), 1) == [second]
    for wanted in (
        {"principal": "oauth:1"},
        {"principal": "ann"},
        {"action": "call"},
        {"target": "git__push"},
        {"until": 20.0},
    ):
        assert store.audit.find(AuditFilter(**cast("dict[str, Any]", wanted))) == [first], wanted
    assert store.audit.find(AuditFilter(since=15.0, action="call")) == []
    assert store.audit.find(AuditFilter(principal="ann' OR '1'='1")) == []


@pytest.mark.parametrize("page", [1, 2, 100])
def test_all_of_them_come_out_page_by_page(page: int, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "PAGE", page)
    store.audit.add([replace(CALL, at=float(at)) for at in range(7)])
    assert [each.at for each in store.audit.each(AuditFilter(since=2.0, until=6.0))] == [2.0, 3.0, 4.0, 5.0]
    assert [each.id for each in store.audit.each(AuditFilter())] == [1, 2, 3, 4, 5, 6, 7]


@requirement("trust:audit")
@pytest.mark.parametrize(
    "statement",
    ["UPDATE audit SET name = 'eve'", "DELETE FROM audit", "UPDATE audit SET at = 0 WHERE id = 1",
     "DELETE FROM audit WHERE id IN (SELECT id FROM audit)"],
)  # fmt: skip
def test_no_statement_changes_or_deletes_an_entry(statement: str, store: Store) -> None:
    store.audit.add([CALL])
    with pytest.raises(StorageError, match="the audit log only grows"):
        cast("Store", store)._database.run(statement)
    assert store.audit.find(AuditFilter()) == [replace(CALL, id=1)]


@requirement("trust:audit")
def test_neither_forgetting_nor_retention_reaches_it(store: Store) -> None:
    store.audit.add([CALL])
    store.forgetting.forget(Selection(everything=True))
    store.retention.prune(1e12)
    assert len(store.audit.find(AuditFilter())) == 1


def test_secrets_in_names_are_taken_out(store: Store) -> None:
    secret = "ghp_" + "Zx81Qw62Er" * 4
    store.audit.add([replace(CALL, name=secret, target=secret, detail=secret, client=secret)])
    assert secret not in repr(store.audit.find(AuditFilter()))
