"""What replicas share: sessions, events and letters, also while the server is restarted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from foretool.fleet.postgres import replicas as module
from foretool.fleet.postgres.replicas import ReplicaStore
from foretool.storage.opening import open_serving_store, open_store
from foretool.storage.records import Letter, LiveEvent, LiveSession, SessionRecord, WorkingSet
from foretool.storage.store import Store

pytestmark = pytest.mark.slow

PATIENCE_S = 10
SESSION = LiveSession(b"digest", "key", "bearer:1", "work", b"memo", "", 100.0)


@pytest.fixture
def stores(address: str) -> Iterator[tuple[Store, Store]]:
    with open_serving_store(address) as one, open_serving_store(address) as other:
        yield one, other


def shared(store: Store) -> ReplicaStore:
    assert store.replicas is not None
    return store.replicas


def test_sqlite_shares_nothing() -> None:
    with open_store(":memory:") as store:
        assert store.replicas is None


def test_a_session_is_found_by_another_replica_until_it_ends(stores: tuple[Store, Store]) -> None:
    one, other = map(shared, stores)
    assert one.save(SESSION) == 1
    assert other.save(LiveSession(b"digest", "key", "bearer:1", "work", b"more", "", 200.0)) == 2
    other.set_reader(b"digest", "r1", "r1")
    other.set_reader(b"digest", "", "r2")  # which had it before
    found = one.find(b"digest")
    assert found == LiveSession(b"digest", "key", "bearer:1", "work", b"more", "r1", 200.0, 2)
    assert (one.revision(b"digest"), one.revision(b"another")) == (2, 0)
    one.keep_events([LiveEvent(b"digest", "a-1", 0, b"x", 0, 1.0)])
    assert other.end(b"digest")
    assert not one.end(b"digest")
    assert (one.find(b"digest"), one.events(b"digest", "a-1", -1)) == (None, [])


def test_a_session_never_changes_its_owner(stores: tuple[Store, Store]) -> None:
    one, other = map(shared, stores)
    one.save(SESSION)
    other.save(LiveSession(b"digest", "other", "bearer:2", "home", b"memo", "", 100.0))
    found = one.find(b"digest")
    assert found is not None
    assert (found.principal, found.profile, found.session) == ("bearer:1", "work", "key")


def test_sessions_that_nobody_uses_end_when_they_were_last_used(stores: tuple[Store, Store]) -> None:
    store, (one, other) = stores[0], map(shared, stores)
    store.sessions.begin(SessionRecord("key", "c", "1", "legacy", "http", "work", 50.0))
    one.save(SESSION)
    one.touch([b"digest"], 300.0)
    other.clean_up(400.0, idle_s=150.0)
    assert one.find(b"digest") is not None
    other.clean_up(500.0, idle_s=0.0)
    assert one.find(b"digest") is not None
    other.clean_up(500.0, idle_s=150.0)
    assert one.find(b"digest") is None
    ended = store.sessions.get("key")
    assert ended is not None and ended.ended_at == 300.0


def test_events_come_in_order_after_the_one_that_was_seen(stores: tuple[Store, Store]) -> None:
    one, other = map(shared, stores)
    events = [LiveEvent(b"digest", "a-1", number, b"%d" % number, int(number == 2), 10.0) for number in range(3)]
    one.keep_events([events[2], events[0], events[1], LiveEvent(b"digest", "a-2", 0, b"", 1, 10.0)])
    one.keep_events([events[1]])  # whose answer was lost
    assert other.events(b"digest", "a-1", 0) == events[1:]
    assert other.events(b"another", "a-1", -1) == []
    other.clean_up(10.0 + module.EVENTS_S + 1, idle_s=0.0)
    assert one.events(b"digest", "a-1", -1) == []


async def hear(store: ReplicaStore, replica: str) -> tuple[asyncio.Task[None], asyncio.Queue[Letter | str]]:
    """Listen, from when this returns."""
    heard: asyncio.Queue[Letter | str] = asyncio.Queue()
    task = asyncio.create_task(store.listen(replica, heard.put_nowait, heard.put_nowait))
    async with asyncio.timeout(PATIENCE_S):
        assert await heard.get() == ""
    return task, heard


@pytest.mark.anyio
async def test_letters_of_any_length_reach_every_replica(stores: tuple[Store, Store]) -> None:
    one, other = map(shared, stores)
    task, heard = await hear(one, "r1")
    letters = [Letter("message", "r2", "r1", b"s", b"\xff" * size) for size in (0, 100, 9_000, 300_000)]
    for letter in letters:
        other.post(letter)
    async with asyncio.timeout(PATIENCE_S):
        assert [await heard.get() for _ in letters] == letters
    task.cancel()


@pytest.mark.anyio
async def test_what_others_say_on_the_channel_is_not_believed(stores: tuple[Store, Store]) -> None:
    one, other = map(shared, stores)
    task, heard = await hear(one, "r1")
    for said in ("", "{}", "[1]", "99999", "9" * 5000, '{"kind":1}', "null", "\u0661"):
        stores[1].calls._database.rows(f"SELECT pg_notify({module._CHANNEL}, ?)", (said,))  # type: ignore[attr-defined]
    other.post(Letter("last", "r2"))
    async with asyncio.timeout(PATIENCE_S):
        assert await heard.get() == Letter("last", "r2")
    assert not task.done()
    task.cancel()


@pytest.mark.anyio
async def test_replicas_hear_of_a_new_list(stores: tuple[Store, Store]) -> None:
    task, heard = await hear(shared(stores[0]), "r1")
    stores[1].serving.save_working_set(WorkingSet("work/full", 1, (), b"[]", 1.0, ""))
    async with asyncio.timeout(PATIENCE_S):
        assert await heard.get() == "working_sets"
    task.cancel()


@pytest.mark.anyio
async def test_a_replica_counts_as_gone_once_its_connection_is(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = map(shared, stores)
    assert one.is_alive("r2")  # nothing is known yet
    mine, _ = await hear(one, "r1")
    theirs, _ = await hear(other, "r2")
    assert one.is_alive("never")  # it may be about to connect again
    monkeypatch.setattr(module, "SETTLING_S", 0.0)
    assert (one.is_alive("r2"), one.is_alive("never")) == (True, False)
    theirs.cancel()
    await asyncio.wait([theirs])
    deadline = time.monotonic() + PATIENCE_S
    while one.is_alive("r2") and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert not one.is_alive("r2")
    mine.cancel()


@pytest.mark.anyio
async def test_listening_goes_on_after_the_connection_was_lost(stores: tuple[Store, Store]) -> None:
    one, other = map(shared, stores)
    task, heard = await hear(one, "r1")
    stores[1].calls._database.rows(  # type: ignore[attr-defined]
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_advisory_lock(%'"
    )
    async with asyncio.timeout(PATIENCE_S):
        assert await heard.get() == ""
        other.post(Letter("last", "r2"))
        assert await heard.get() == Letter("last", "r2")
    task.cancel()


@pytest.mark.anyio
async def test_who_is_told_of_a_promotion_or_a_rollback_finds_it_done(stores: tuple[Store, Store]) -> None:
    one, other = stores
    seen: asyncio.Queue[tuple[int, bool]] = asyncio.Queue()

    def look(table: str) -> None:
        if table == "artifacts":
            seen.put_nowait((one.artifacts.version, one.artifacts.active("dtdr") is not None))

    task = asyncio.create_task(shared(one).listen("r1", lambda letter: None, look))
    changes = (
        lambda: (other.artifacts.add("dtdr", b"model", {}, promote=True), other.artifacts.bump_version()),
        lambda: other.artifacts.roll_back("dtdr"),
        lambda: (other.artifacts.add("dtdr", b"model", {}, promote=True), other.artifacts.bump_version()),
        lambda: other.artifacts.roll_back("dtdr"),
    )
    async with asyncio.timeout(PATIENCE_S):
        await until_listening(one)
        for version, change in enumerate(changes, 1):
            change()
            # Nobody looks once more: the last word has to come with the new version.
            while await seen.get() != (version, version % 2 == 1):
                pass
    task.cancel()


async def until_listening(store: Store) -> None:
    while not shared(store)._listening_since:  # type: ignore[attr-defined]
        await asyncio.sleep(0.01)
