"""A server that goes away, others that write, and addresses with passwords."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace
from postgres import cut_off
from stored_records import CALL, DISCOVERY, EXPOSURE, MISS

from bench.storage.slow_network import SlowNetwork
from foretool.storage.engine import StorageError
from foretool.storage.opening import open_serving_store, open_store
from foretool.storage.records import AuditEntry, AuditFilter, Call, ClientRecord, StepRecord
from foretool.storage.store import Store

pytest.importorskip("psycopg")
from foretool.fleet.postgres import database

pytestmark = pytest.mark.slow


def test_a_server_that_restarts_is_taken_up_again_and_nothing_is_written_twice(address: str) -> None:
    again = replace(CALL, took_ms=7.25)
    with open_serving_store(address) as store:
        store.calls.record([CALL])
        cut_off(store, address)
        with pytest.raises(StorageError, match="check that the server runs") as caught:
            store.calls.record([again, again], [MISS])
        assert caught.value.temporary and store.trouble
        with pytest.raises(StorageError):
            store.calls.recent(1)
        assert store.reopen() and not store.trouble
        store.calls.record([again, again], [replace(MISS, call=2)])
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


def over_network(address: str, network: SlowNetwork) -> str:
    return re.sub(r"host=[^&]*", f"host=127.0.0.1&port={network.port}", address)


def network_to(address: str, delay_s: float = 0.0) -> SlowNetwork:
    (folder,) = parse_qs(urlsplit(address).query)["host"]
    return SlowNetwork(folder, 5432, delay_s)


def test_a_commit_whose_answer_was_lost_is_not_made_twice(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "ANSWER_S", 1.0)
    first, second = replace(CALL, took_ms=7.25), replace(CALL, took_ms=8.25)
    with network_to(address).running() as network, open_serving_store(over_network(address, network)) as store:
        for calls, misses in (([first], []), ([second, replace(CALL, took_ms=9.5)], [replace(MISS, call=2)])):
            network.is_mute = True
            with pytest.raises(StorageError, match="has not answered for 1 s") as caught:
                store.calls.record(calls, misses)
            assert caught.value.temporary and store.trouble
            network.is_mute = False
            assert store.reopen()
            later = replace(CALL, took_ms=20.0 + len(calls))
            store.calls.record([*calls, later], [*misses, replace(MISS, tool="later", call=len(calls) + 1)])
        found = store.calls.recent(-1)
        assert len(found) == len({call.took_ms for call in found}) == 5
        by_id = {call.id: call for call in found}
        assert [by_id[miss.call].took_ms for miss in store.calls.misses() if miss.tool == MISS.tool] == [9.5]
        assert {by_id[miss.call].took_ms >= 20 for miss in store.calls.misses() if miss.tool == "later"} == {True}


def test_lists_searches_and_steps_whose_answer_was_lost_are_not_written_twice(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "ANSWER_S", 1.0)
    step = StepRecord("s1", 5.0, "t", (), (), 1, 1, 0.5, None, "none", False, "", 1.0)
    with network_to(address).running() as network, open_serving_store(over_network(address, network)) as store:
        writes: list[Callable[[int], int]] = [
            lambda number: store.sessions.add_exposure(replace(EXPOSURE, at=float(number))),
            lambda number: store.discoveries.add(replace(DISCOVERY, at=float(number))),
            lambda number: store.tasks.add_step(replace(step, at=float(number))),
        ]
        for write in writes:
            assert write(1) == 1
            network.is_mute = True
            with pytest.raises(StorageError, match="has not answered for 1 s"):
                write(2)
            network.is_mute = False
            assert store.reopen()
            again, later = write(2), write(3)
            assert 1 < again < later and write(3) > later, "a doubt is about one record"
        assert [len(found) for found in (store.sessions.exposures("s1"), store.discoveries.recent(-1))] == [4, 4]
        assert len(store.tasks.steps()) == 4


def test_what_a_client_did_after_a_change_of_its_list_is_counted_once_however_often_the_answer_is_lost(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "ANSWER_S", 1.0)
    seen = ClientRecord("c", "1", "legacy", 1, 1, 5.0, 3.0)

    def counted(store: Store) -> tuple[int, str]:
        found = store.clients.get("c", "1", "legacy")
        return (found.announced, found.recent) if found is not None else (0, "")

    with network_to(address).running() as network, open_serving_store(over_network(address, network)) as store:
        store.clients.add_relist(seen)
        for number in range(2, 5):
            again = replace(seen, last_seen=float(number))
            # The answer is lost, then all that is sent: the first write was made, the second one was not.
            for mutes in ("COMMIT", ""):
                network.mutes, network.is_mute = mutes, not mutes
                with pytest.raises(StorageError, match="has not answered for 1 s"):
                    store.clients.add_relist(again)
                network.mutes, network.is_mute = "", False
                assert store.reopen()
            store.clients.add_relist(again)
            assert counted(store) == (number, "1" * number)
        # The same again, without a doubt, is another one.
        store.clients.add_relist(again)
        assert counted(store)[0] == 5
        # Other replicas have rows of their own, and old ones go.
        store.calls._database.run(  # type: ignore[attr-defined]
            "INSERT INTO counters (name, value) VALUES ('mark.relists.gone', 5)"
        )
        with open_store(address) as other:
            other.clients.add_relist(replace(seen, last_seen=9.0))
            rows = other.calls._database.rows("SELECT name FROM counters WHERE name LIKE 'mark.%'")  # type: ignore[attr-defined]
        assert len(rows) == 2 and ("mark.relists.gone",) not in rows


def test_calls_with_their_audit_entries_are_not_written_twice_however_often_the_answer_is_lost(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "ANSWER_S", 1.0)
    waiting: list[tuple[Call, AuditEntry]] = []

    def write(store: Store) -> None:
        with store.atomic():
            store.calls.record([call for call, _ in waiting], [replace(MISS, at=waiting[0][0].at, call=1)])
            store.audit.add([entry for _, entry in waiting])

    with network_to(address).running() as network, open_serving_store(over_network(address, network)) as store:
        for number in range(3):
            at = 100.0 + number
            waiting.append((replace(CALL, at=at), AuditEntry(at, "p", "ann", "c", "", "call", "t", "ok", session="s1")))
            network.mutes = "COMMIT"
            with pytest.raises(StorageError, match="has not answered for 1 s"):
                write(store)
            network.mutes, network.is_mute = "", False
            assert store.reopen()
        write(store)
        assert sorted(call.at for call in store.calls.recent(-1)) == [100.0, 101.0, 102.0]
        assert sorted(entry.at for entry in store.audit.find(AuditFilter())) == [100.0, 101.0, 102.0]
        (miss,) = store.calls.misses()
        found = store.calls.get(miss.call)
        assert found is not None and found.at == 100.0


def test_a_commit_that_the_server_makes_late_is_waited_for(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "ANSWER_S", 1.0)
    with open_serving_store(address) as store:
        store.calls.record([CALL])
        (pid,) = store.calls._database.rows("SELECT pg_backend_pid()")[0]  # type: ignore[attr-defined]
        call = replace(CALL, at=50.0)
        os.kill(pid, signal.SIGSTOP)  # as a disk that hangs
        try:
            with pytest.raises(StorageError, match="has not answered for 1 s"):
                store.calls.record([call])
            assert not store.reopen()
        finally:
            os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + 60
        while not store.reopen():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        store.calls.record([call])
        assert [each.at for each in store.calls.recent(-1)].count(50.0) == 1


def test_a_commit_that_never_came_to_the_server_is_made_again(address: str) -> None:
    with network_to(address).running() as network, open_serving_store(over_network(address, network)) as store:
        network.cut()
        call = replace(CALL, took_ms=7.25)
        with pytest.raises(StorageError):
            store.calls.record([call], [replace(MISS, call=1)])
        assert store.reopen()
        store.calls.record([call], [replace(MISS, call=1)])
        assert (len(store.calls.recent(-1)), len(store.calls.misses())) == (1, 1)


def test_a_batch_with_its_misses_is_one_round_trip(address: str) -> None:
    with network_to(address, 0.02).running() as network, open_store(over_network(address, network)) as store:
        store.calls.record([CALL, CALL], [replace(MISS, call=2), MISS])
        before = network.turns
        store.calls.record([CALL, CALL], [replace(MISS, call=2), MISS])
        assert network.turns - before == 1
        assert len(store.calls.misses()) == 4


def test_a_table_that_others_lock_is_waited_for_only_so_long(address: str) -> None:
    with open_serving_store(address, busy_ms=50) as store, open_store(address) as other:
        with other.atomic():
            other.calls._database.run("LOCK TABLE calls IN ACCESS EXCLUSIVE MODE")  # type: ignore[attr-defined]
            for calls in ([CALL], [CALL, CALL]):
                with pytest.raises(StorageError, match="lock timeout") as caught:
                    store.calls.record(calls, [])
                assert caught.value.temporary and not store.trouble
        store.calls.record([CALL])
        assert len(store.calls.recent(-1)) == 1
