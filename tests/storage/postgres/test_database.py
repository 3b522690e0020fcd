"""A server that goes away, others that write, and addresses with passwords."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace
from postgres import SKIPPED, cut_off, new_schema
from stored_records import CALL, MISS

from foretool.storage.opening import open_serving_store, open_store
from foretool.storage.stores import StorageError

pytest.importorskip("psycopg")


@pytest.fixture
def address() -> str:
    return new_schema() or pytest.skip(SKIPPED)


def test_a_server_that_restarts_is_taken_up_again_and_nothing_is_written_twice(address: str) -> None:
    with open_serving_store(address) as store:
        store.calls.record([CALL])
        cut_off(store, address)
        with pytest.raises(StorageError, match="check that the server runs") as caught:
            store.calls.record([CALL, CALL], [MISS])
        assert caught.value.temporary and store.trouble
        with pytest.raises(StorageError):
            store.calls.recent(1)
        assert store.reopen() and not store.trouble
        store.calls.record([CALL, CALL], [replace(MISS, call=2)])
        assert len(store.calls.recent(9)) == 3
        (miss,) = store.calls.misses()
        assert store.calls.get(miss.call) == store.calls.recent(1)[0]


def test_a_server_that_is_away_makes_a_proxy_wait_and_a_command_say_so() -> None:
    place = "postgresql://someone:hunter2@127.0.0.1:1/none"
    with open_serving_store(place) as store:
        assert "postgresql://someone@127.0.0.1:1/none: " in store.trouble and "hunter2" not in store.trouble
        assert not store.reopen()
    with pytest.raises(StorageError, match="check that the server runs") as caught:
        open_store(place)
    assert "hunter2" not in str(caught.value)


def test_four_writers_at_once_lose_nothing_and_count_each_call_once(address: str) -> None:
    open_store(address).close()
    start = threading.Barrier(4)

    def write(number: int) -> None:
        with open_store(address, busy_ms=20_000) as store:
            start.wait(30)
            for _ in range(40):
                store.calls.record([replace(CALL, session=str(number))])
                store.calls.record([CALL, CALL], [replace(MISS, call=2)])
                store.calls.usage()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    with open_store(address) as store:
        assert sum(each.calls for each in store.calls.usage()) == 4 * 40 * 3
        calls = {call.id: call for call in store.calls.recent(-1)}
        assert len(calls) == 480 and all(miss.call in calls for miss in store.calls.misses())


def test_two_that_open_a_new_database_at_once_create_it_once(address: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        for store in pool.map(lambda _: open_store(address), range(4)):
            store.close()


def test_rows_come_one_by_one_while_others_are_asked_for(address: str) -> None:
    with open_store(address) as store:
        store.calls.record([replace(CALL, hidden=True, discovery=0)] * 3)
        assert [store.calls.get(1) is not None for _ in store.discoveries.needs(0.0)] == [True] * 3
