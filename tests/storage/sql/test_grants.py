"""What is kept of people's grants, in both engines."""

from __future__ import annotations

import pytest
from stored_records import granted_servers

from foretool.storage.records import SealedGrant, Selection
from foretool.storage.sql import people
from foretool.storage.store import Store


def test_each_person_has_one_grant_for_each_server(store: Store) -> None:
    for person in ("ann", "ben"):
        store.grants.save("mail", person, person.encode(), 1.0)
    store.grants.save("git", "ann", b"git", 1.0)
    store.grants.save("mail", "ann", b"newer\x00", 2.0)
    assert store.grants.load("mail", "ann") == b"newer\x00" and store.grants.load("mail", "ben") == b"ben"
    assert granted_servers(store, "ann") == ["git", "mail"] and store.grants.load("git", "ben") is None
    assert store.grants.remove("mail", "ann") and not store.grants.remove("mail", "ann")
    assert store.grants.load("mail", "ann") is None and store.grants.load("mail", "ben") == b"ben"


def test_a_grant_that_was_deleted_does_not_come_back(store: Store) -> None:
    store.grants.save("mail", "ann", b"old", 1.0)
    assert store.grants.replace("mail", "ann", b"old", b"new", 2.0)
    assert not store.grants.replace("mail", "ann", b"old", b"newest", 3.0)
    assert not store.grants.remove("mail", "ann", b"old") and store.grants.load("mail", "ann") == b"new"
    store.grants.remove("mail", "ann")
    assert not store.grants.replace("mail", "ann", b"new", b"newest", 4.0)
    assert store.grants.load("mail", "ann") is None


def test_a_consent_is_taken_once_and_in_time(store: Store) -> None:
    store.grants.begin(b"a", b"sealed", 100.0)
    assert store.grants.take(b"b", 2.0) is None and store.grants.take(b"a", 2.0) == b"sealed"
    assert store.grants.take(b"a", 2.0) is None
    store.grants.begin(b"c", b"late", 100.0)
    assert store.grants.take(b"c", 101.0) is None
    # What came too late is there for who ends it, once, and for nobody else.
    store.grants.begin(b"d", b"later", 200.0)
    assert store.grants.take_late(101.0, 0) == []
    assert store.grants.take_late(101.0, 5) == [(b"c", b"late")]
    assert store.grants.take_late(101.0, 5) == [] and store.grants.take(b"c", 2.0) is None
    assert store.grants.take(b"d", 101.0) == b"later"


def test_consents_under_way_have_a_bound(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "MOST_CONSENTS", 3)
    for number in range(6):
        store.grants.begin(b"%d" % number, b"x", 100.0 + number)
    assert [store.grants.take(b"%d" % number, 2.0) for number in range(6)] == [None] * 3 + [b"x"] * 3


def test_forgetting_everything_or_a_server_forgets_its_grants(store: Store) -> None:
    for server in ("mail", "git"):
        store.grants.save(server, "ann", b"x", 1.0)
    assert store.forgetting.forget(Selection(server="mail"), dry=True).grants == ()
    forgotten = store.forgetting.forget(Selection(server="mail"))
    assert forgotten.counts["grants"] == 1 and forgotten.grants == (SealedGrant("mail", "ann", b"x"),)
    assert store.grants.load("mail", "ann") is None and store.grants.load("git", "ann") == b"x"
    assert store.forgetting.forget(Selection(everything=True)).counts["grants"] == 1
    assert store.grants.load("git", "ann") is None
