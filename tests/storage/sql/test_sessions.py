"""Sessions, their lists and the client ledger come back as the records they were."""

from msgspec.structs import replace
from requirements import requirement
from stored_records import SESSION

from foretool.storage.records import ClientRecord
from foretool.storage.sql.sessions import MOST_CLIENTS
from foretool.storage.store import Store


def test_a_session_begins_and_ends(store: Store) -> None:
    store.sessions.begin(SESSION)
    store.sessions.begin(replace(SESSION, profile="a second begin changes nothing"))
    store.sessions.begin(replace(SESSION, key="s2", started_at=20.0))
    store.sessions.end("s1", 30.0)
    assert store.sessions.recent() == [replace(SESSION, key="s2", started_at=20.0), replace(SESSION, ended_at=30.0)]
    assert store.sessions.get("s1") == replace(SESSION, ended_at=30.0)
    assert store.sessions.get("s3") is None


def test_the_ledger_counts_re_lists_and_takes_their_median_delay(store: Store) -> None:
    store.sessions.begin(SESSION)
    key = ("claude-code", "2.1", "modern")
    assert store.clients.get(*key) == ClientRecord(*key, 0, 0, 0.0, 10.0)
    for ms, at in [(30.0, 11.0), (10.0, 12.0), (20.0, 13.0)]:
        store.clients.add_relist(ClientRecord(*key, announced=1, relisted=1, relist_ms=ms, last_seen=at))
    store.clients.add_relist(ClientRecord(*key, announced=1, relisted=0, relist_ms=0.0, last_seen=14.0))
    store.clients.add_relist(ClientRecord("cursor", "1", "legacy", 1, 0, 0.0, 15.0))
    assert store.clients.get(*key) == ClientRecord(*key, 4, 3, 20.0, 14.0, "1110")
    assert [record.client for record in store.clients.all()] == ["cursor", "claude-code"]
    assert store.clients.get("vscode", "1", "legacy") is None


def test_the_median_is_of_the_latest_delays(store: Store) -> None:
    for ms in [1000.0] * 40 + [5.0] * 31:
        store.clients.add_relist(ClientRecord("c", "1", "legacy", 1, 1, ms, 1.0))
    assert [(record.relisted, record.relist_ms) for record in store.clients.all()] == [(71, 5.0)]


@requirement("policy:auto:ledger-bounded")
def test_a_client_that_gives_ever_new_names_neither_fills_the_ledger_nor_drops_what_was_measured(store: Store) -> None:
    store.clients.add_relist(ClientRecord("opencode", "1", "legacy", 1, 1, 9.0, 1.0))
    for at in range(MOST_CLIENTS + 200):
        store.sessions.begin(replace(SESSION, key=f"k{at}", client=f"made-up-{at}", started_at=10.0 + at))
    kept = {each.client for each in store.clients.all()}
    assert len(kept) == MOST_CLIENTS
    assert {"opencode", f"made-up-{MOST_CLIENTS + 199}"} <= kept


def test_only_the_latest_outcomes_are_kept(store: Store) -> None:
    for relisted in [1] * 30 + [0] * 15:
        store.clients.add_relist(ClientRecord("c", "1", "legacy", 1, relisted, 1.0, 1.0, tries=1))
    store.clients.add_relist(ClientRecord("c", "1", "legacy", 0, 0, 0.0, 1.0, late=1))
    assert [(each.recent, each.tries, each.late) for each in store.clients.all()] == [("1" + "0" * 15, 45, 1)]


def test_whose_a_session_is_stays_as_it_was_first_said(store: Store) -> None:
    assert store.sessions.people() == {}
    store.sessions.name_person("s1", "ann", learns=False, at=1.0)
    store.sessions.name_person("s1", "eve", learns=True, at=2.0)
    store.sessions.name_person("s2", "ben", learns=True, at=2.0)
    assert store.sessions.people() == {"s1": ("ann", False), "s2": ("ben", True)}
