"""Calls, exposures and discoveries by day: midnight, clocks that differ, late records, replicas that make days at once,
a store from before there were days, and days that go."""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace
from requirements import requirement
from stored_records import CALL, DISCOVERY, EXPOSURE, MISS, SESSION

from foretool.storage.engine import StorageError
from foretool.storage.opening import open_store
from foretool.storage.records import Selection, ToolId
from foretool.storage.store import Store

psycopg = pytest.importorskip("psycopg")
days = pytest.importorskip("foretool.fleet.postgres.days")
schema = pytest.importorskip("foretool.fleet.postgres.schema")

pytestmark = pytest.mark.slow

DAY = 86_400.0
FIRST = 20_000
"""A day in 2024, counted from 1970."""
NOON = FIRST * DAY + DAY / 2


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    with open_store(address, busy_ms=20_000) as store:
        yield store


def ask(store: Store, sql: str, *values: Any) -> list[Any]:
    return store._database.rows(sql, values)  # type: ignore[attr-defined, no-any-return]


def make_days(store: Store, today: int, ahead: int = days.AHEAD) -> int:
    """Make days as a proxy does whose server says that it is this day."""
    return int(ask(store, "SELECT make_days(?, ?)", ahead, today)[0][0])


def days_of(store: Store, table: str = "calls") -> dict[str, int]:
    """The rows of each partition that has some."""
    found = ask(store, f"SELECT tableoid::regclass::text, count(*) FROM {table} GROUP BY 1 ORDER BY 1")
    return dict(found)


def call_at(at: float, **fields: Any) -> Any:
    return replace(CALL, at=at, **fields)


def test_a_day_ends_at_midnight_in_utc(store: Store) -> None:
    make_days(store, FIRST)
    midnight = (FIRST + 1) * DAY
    ask(store, "SELECT set_config('TimeZone', 'Pacific/Kiritimati', false)")
    for at in (FIRST * DAY, math.nextafter(midnight, 0), midnight, math.nextafter(midnight, math.inf)):
        store.calls.record([call_at(at)])
        store.discoveries.add(replace(DISCOVERY, at=at))
        store.sessions.add_exposure(replace(EXPOSURE, at=at))
    for table in ("calls", "discoveries", "exposures"):
        assert days_of(store, table) == {f"{table}_20241004": 2, f"{table}_20241005": 2}
    assert [call.at for call in store.calls.of_session("s1", midnight, midnight + 9)] == [
        midnight, math.nextafter(midnight, math.inf),
    ]  # fmt: skip


@pytest.mark.parametrize("at", [1.0, -1e300, 1e300, math.inf, -math.inf, math.nan, 4e9])
def test_no_insert_fails_for_want_of_a_day(store: Store, at: float) -> None:
    store.calls.record([call_at(at)], [replace(MISS, call=1)])
    id = store.discoveries.add(replace(DISCOVERY, at=at))
    exposure = store.sessions.add_exposure(replace(EXPOSURE, at=at))
    assert days_of(store) == {"calls_rest": 1}
    found = store.discoveries.get(id)
    assert found is not None and repr(found.at) == repr(at)
    assert store.calls.get(store.calls.misses()[0].call) and store.sessions.exposure(exposure)
    assert sum(each.calls for each in store.calls.usage()) == len(store.calls.recent(5)) == 1
    store.discoveries.set_handle(id, "later")
    assert store.discoveries.recent(1)[0].handle == "later"


def test_today_and_the_next_days_are_there_from_the_start_and_the_checkpoint_makes_more(store: Store) -> None:
    today = int(time.time() // DAY)
    found = {int(since / DAY) for (since,) in ask(store, "SELECT since FROM days WHERE parent = 'calls'")}
    assert found >= {today, today + 1, today + 2}
    ask(store, "SELECT drop_day(part) FROM days WHERE since > ?", (today + 1) * DAY - 1)
    assert store.is_checkpoint_due
    store.checkpoint()
    assert not store.is_checkpoint_due
    assert found == {int(since / DAY) for (since,) in ask(store, "SELECT since FROM days WHERE parent = 'calls'")}


def test_two_replicas_that_make_a_day_at_once_make_it_once(address: str, store: Store) -> None:
    start = threading.Barrier(4)

    def make(_: int) -> int:
        with open_store(address, busy_ms=20_000) as own:
            start.wait(30)
            for _ in range(5):  # while others are at it for longer than a proxy waits, it comes again
                with contextlib.suppress(StorageError):
                    return make_days(own, FIRST, 5)
            return 0

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(make, range(4))) == 3 * 6
    assert ask(store, "SELECT count(*), count(DISTINCT part) FROM days WHERE until <= ?", (FIRST + 6) * DAY) == [
        (18, 18)
    ]


def test_days_are_made_while_others_write(address: str, store: Store) -> None:
    done = threading.Event()

    def write(number: int) -> int:
        count = 0
        with open_store(address, busy_ms=20_000) as own:
            while not done.is_set():
                own.calls.record([call_at(NOON + (count % 8) * DAY, session=str(number))])
                count += 1
        return count

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, number) for number in range(3)]
        for day in range(8):
            for _ in range(20):
                with contextlib.suppress(StorageError):
                    make_days(store, FIRST + day, 0)
                    break
        done.set()
        written = sum(each.result(60) for each in writers)
    assert len(store.calls.recent(-1)) == written == sum(each.calls for each in store.calls.usage())
    assert all(len(store.calls.recent(most)) == min(most, written) for most in (1, 3, 10, 100))


def test_what_a_fast_clock_wrote_moves_into_its_day_once_that_is_made(store: Store) -> None:
    make_days(store, FIRST)
    store.calls.record([call_at(NOON)])
    store.calls.record([call_at(NOON + 5 * DAY, session="fast")])
    store.calls.record([call_at(NOON + 1)])
    assert days_of(store) == {"calls_20241004": 2, "calls_rest": 1}
    make_days(store, FIRST + 4)
    assert days_of(store) == {"calls_20241004": 2, "calls_20241009": 1}
    assert [call.id for call in store.calls.recent(-1)] == [3, 2, 1]
    found = store.calls.get(2)
    assert found is not None and found.session == "fast"
    assert [each.calls for each in store.calls.usage()] == [3]


def test_replicas_whose_clocks_differ_by_hours_lose_nothing_around_midnight(store: Store) -> None:
    make_days(store, FIRST)
    written = []
    for step in range(40):
        skew = (-5 * 3600, 0, 5 * 3600)[step % 3]
        written.append((FIRST + 1) * DAY - 3600 + step * 180 + skew)
        store.calls.record([call_at(written[-1])])
        if step == 20:
            store.calls.usage()
            make_days(store, FIRST + 1)
    assert [call.at for call in store.calls.recent(-1)] == written[::-1]
    assert [each.calls for each in store.calls.usage()] == [40]
    ids = {call.at: call.id for call in store.calls.recent(-1)}
    assert [event.at for event in store.calls.events_between(ids[written[10]], ids[written[30]])] == written[10:31]


def test_a_record_that_is_late_for_a_closed_day_is_found_and_counted(store: Store) -> None:
    make_days(store, FIRST)
    store.calls.record([call_at(NOON)] * 3)
    make_days(store, FIRST + 3)
    store.calls.record([call_at(NOON + 3 * DAY)] * 2)
    store.calls.usage()
    store.calls.record([call_at(NOON + 1, tool=ToolId("late"))])
    assert days_of(store) == {"calls_20241004": 4, "calls_20241007": 2}
    assert {each.tool: each.calls for each in store.calls.usage()} == {CALL.tool: 5, "late": 1}
    found = store.calls.get(6)
    assert found is not None and found.tool == "late" and store.calls.recent(1) == [found]
    assert store.statistics().calls == 6
    id = store.discoveries.add(replace(DISCOVERY, at=NOON))
    assert store.statistics().discoveries == 1
    store.discoveries.set_handle(id, "h9")
    assert store.discoveries.recent(1)[0].handle == "h9"


@requirement("trust:data:retention")
def test_a_record_that_is_late_for_a_dropped_day_is_kept_until_the_next_turn(store: Store) -> None:
    make_days(store, FIRST)
    store.calls.record([call_at(NOON)] * 3)
    assert store.retention.prune((FIRST + 1) * DAY) == 3
    assert store.calls.recent(-1) == [] and [each.calls for each in store.calls.usage()] == [3]
    store.calls.record([call_at(NOON + 1)])
    assert days_of(store) == {"calls_rest": 1}
    assert [call.id for call in store.calls.recent(-1)] == [4] and store.calls.get(4) is not None
    assert store.retention.prune((FIRST + 1) * DAY) == 1
    assert [each.calls for each in store.calls.usage()] == [4] and store.calls.recent(-1) == []
    assert make_days(store, FIRST - 1, 0) == 3, "the next day is made although days after it are there"


@requirement("trust:data:retention")
def test_whole_days_go_once_all_of_a_day_is_old_and_numbers_stay(store: Store) -> None:
    make_days(store, FIRST, 3)
    for day in range(3):
        store.sessions.begin(replace(SESSION, key=f"s{day}", started_at=NOON + day * DAY))
        store.sessions.add_exposure(
            replace(EXPOSURE, session=f"s{day}", at=NOON + day * DAY, tools=(ToolId(f"t{day}"),))
        )
        found = store.discoveries.add(replace(DISCOVERY, at=NOON + day * DAY))
        store.calls.record([call_at(NOON + day * DAY, discovery=found)] * 2)
    part = store.costs.part(3)
    assert store.costs.add(part, [], {}, 0.0)
    assert store.retention.prune((FIRST + 1) * DAY - 1) == 1, "the session alone"
    assert store.retention.prune((FIRST + 2) * DAY - 1) >= 4
    assert days_of(store) == {"calls_20241005": 2, "calls_20241006": 2}
    assert days_of(store, "discoveries") == {"discoveries_20241005": 1, "discoveries_20241006": 1}
    numbers = store.statistics()
    assert (numbers.calls, numbers.discoveries, numbers.exposures) == (4, 2, 2)
    assert [each.calls for each in store.calls.usage()] == [6]
    assert {call.discovery for call in store.calls.recent(-1)} == {2, 3}
    assert ask(store, "SELECT count(*) FROM lists") == [(2,)]
    while part := store.costs.part(1).turns and store.costs.part(1):
        before = store.costs.waiting()
        store.costs.add(part, [], {}, 0.0)
        if store.costs.waiting() == before:
            break
    assert store.statistics().calls == 4


def test_a_day_that_somebody_reads_goes_later_and_holds_nobody_up(
    address: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(days, "TRIES", 2)
    make_days(store, FIRST)
    store.calls.record([call_at(NOON)] * 3)
    with psycopg.connect(address) as backup:
        backup.execute("SELECT count(*) FROM calls")
        assert store.retention.prune((FIRST + 1) * DAY) == 0
        store.calls.record([call_at(NOON + DAY)])
        assert len(store.calls.recent(-1)) == 4
    assert store.retention.prune((FIRST + 1) * DAY) == 3
    assert days_of(store) == {"calls_20241005": 1}


def test_calls_that_nobody_has_counted_do_not_go_uncounted(store: Store) -> None:
    make_days(store, FIRST)
    store.calls.record([call_at(NOON)] * 3)
    assert ask(store, "SELECT drop_day('calls_20241004')") == [(-1,)]
    store.calls.usage()
    store.calls.record([call_at(NOON)])
    assert days.prune(store._database, (FIRST + 1) * DAY, 100, store.calls.usage) == 4  # type: ignore[attr-defined]
    assert [each.calls for each in store.calls.usage()] == [4]


def test_what_is_forgotten_is_out_of_the_counts_of_closed_days(store: Store) -> None:
    make_days(store, FIRST, 3)
    for day in range(3):
        store.discoveries.add(replace(DISCOVERY, at=NOON + day * DAY, session=f"s{day}"))
        store.calls.record([call_at(NOON + day * DAY, session=f"s{day}")] * 2)
    make_days(store, FIRST + 9)
    assert ask(store, "SELECT sum(count) FROM days WHERE parent = 'discoveries'") == [(3,)]
    forgotten = store.forgetting.forget(Selection(session="s1"))
    assert (forgotten.counts["calls"], forgotten.counts["discoveries"]) == (2, 1)
    assert [each.session for each in store.calls.recent(-1)] == ["s2", "s2", "s0", "s0"]
    for _ in range(2):
        assert (store.statistics().discoveries, store.statistics().calls) == (2, 4)
        make_days(store, FIRST + 9)
    store.forgetting.compact()


def test_a_question_about_an_id_reads_few_days(store: Store) -> None:
    ask(store, "SELECT drop_day(part) FROM days")
    for day in range(60):
        make_days(store, FIRST + day, 2)
        store.calls.record([call_at(NOON + day * DAY)] * 20)
        store.discoveries.add(replace(DISCOVERY, at=NOON + day * DAY))
    make_days(store, FIRST + 60, 0)
    database = store._database  # type: ignore[attr-defined]
    for table, first, last in (
        ("calls", 600, 600), ("calls", 600, 640), ("calls", 1190, None), ("discoveries", 30, 30),
        ("calls", database.first_of_latest("calls", 30), None),
    ):  # fmt: skip
        within = database.within(table, first, last)
        plan = "\n".join(
            line for (line,) in ask(store, f"EXPLAIN SELECT * FROM {table} WHERE id >= {first} AND {within}")
        )
        read = plan.count(f" on {table}_2024") + plan.count(f" on {table}_rest")
        assert 1 <= read <= 60 - 50, plan
    assert store.calls.get(600) is not None and len(store.calls.events_between(600, 640)) == 41


@pytest.mark.parametrize("seed", range(4))
def test_no_record_is_outside_of_the_days_that_its_id_may_have(store: Store, seed: int) -> None:
    choose = random.Random(seed)
    database = store._database  # type: ignore[attr-defined]
    today = FIRST
    for _ in range(25):
        match choose.randrange(4):
            case 0:
                today += choose.choice((0, 1, 1, 2, 9))
                make_days(store, today, choose.choice((0, 2)))
            case 1:
                store.retention.prune((today - choose.randrange(30)) * DAY)
            case _:
                for _ in range(choose.randrange(1, 6)):
                    skew = choose.choice((0.0, 0.0, 3600.0, -DAY, 3 * DAY, -12 * DAY))
                    store.calls.record([call_at(NOON + (today - FIRST) * DAY + skew)] * choose.randrange(1, 5))
        rows = ask(store, "SELECT id, at FROM calls")
        for _ in range(4):
            first = choose.randrange(1, 90)
            last = choose.choice((None, first, first + choose.randrange(40)))
            wanted = {id for id, _ in rows if id >= first and (last is None or id <= last)}
            within = database.within("calls", first, last)
            found = ask(store, f"SELECT id FROM calls WHERE id >= ? AND id <= ? AND {within}", first, last or 1 << 40)
            assert {id for (id,) in found} == wanted, (within, ask(store, "SELECT * FROM days"))
            since = NOON + (choose.randrange(20) - 10 + today - FIRST) * DAY
            assert all(id >= database.first_since("calls", since) for id, at in rows if at >= since)
            limit = choose.randrange(1, 30)
            assert [call.id for call in store.calls.recent(limit)] == sorted((id for id, _ in rows), reverse=True)[
                :limit
            ]


# A store from before there were days


OLD_CALL = (
    "INSERT INTO calls (session, at, tool, upstream, via, hidden, outcome, took_ms, sent, arguments, discovery, handle)"
    " VALUES ('s1', %s, 'git__log', 'git', 'name', 0, 'ok', 1.5, 1, '{}', 0, '')"
)
OLD_DISCOVERY = (
    "INSERT INTO discoveries (session, at, task, names, sufficiency, level, matches, tokens, took_ms, handle,"
    " probability) VALUES ('s1', %s, 'a task', '[]', NULL, 'high', '[]', 1, 1.0, '', NULL) RETURNING id"
)


def make_old(address: str) -> Any:
    """A connection to the tables as they were, as a proxy of that version holds it."""
    connection = psycopg.connect(address, autocommit=True)
    with connection.transaction():
        schema.migrate(psycopg.Cursor(connection).execute, schema.STEPS[:3])
    return connection


def test_a_store_with_records_is_divided_and_loses_none(address: str) -> None:
    now = time.time()
    old = make_old(address)
    ats = [1.0, now - 40 * DAY, now - DAY, now, now + 5 * DAY, 1e12]
    for at in ats:
        old.execute(OLD_CALL, (at,))
        old.execute(OLD_DISCOVERY, (at,))
    old.execute("INSERT INTO usage_folded (id, call, miss) VALUES (1, 2, 0)")
    old.execute("DELETE FROM discoveries WHERE id > 3")
    with open_store(address) as store:
        assert days_of(store) == {"calls_before": 4, "calls_rest": 2}
        assert [call.at for call in store.calls.recent(-1)] == ats[::-1]
        store.calls.record([call_at(now)])
        assert store.calls.recent(1)[0].id == 7
        assert store.discoveries.add(replace(DISCOVERY, at=now)) == 7, "the id of a deleted record is not given again"
        found = store.calls.get(2)
        assert found is not None and found.at == ats[1]
        assert [each.calls for each in store.calls.usage()] == [5]
        assert store.retention.prune(now - 30 * DAY) >= 4
        assert days_of(store) == {"calls_before": 3, "calls_rest": 2}
        store.checkpoint()
        assert (store.statistics().calls, store.statistics().discoveries) == (5, 2)
        tomorrow = (now // DAY + 1) * DAY
        store.calls.usage()
        assert store.retention.prune(tomorrow) >= 3
        assert days_of(store) == {"calls_rest": 2}
        assert "calls_before" not in {part for (part,) in ask(store, "SELECT part FROM days")}
    old.close()


def test_an_old_and_a_new_replica_write_to_one_schema(address: str) -> None:
    now = time.time()
    old = make_old(address)
    cursor = psycopg.Cursor(old)
    for _ in range(7):  # planned once, as an old proxy has it
        cursor.execute(OLD_CALL, (now,), prepare=True)
        cursor.execute(OLD_DISCOVERY, (now,), prepare=True)
    with open_store(address) as store:
        cursor.execute(OLD_CALL, (now + 3,), prepare=True)
        (id,) = cursor.execute(OLD_DISCOVERY, (now + 3,), prepare=True).fetchone()
        assert id == 8
        assert cursor.execute("SELECT currval(pg_get_serial_sequence('calls', 'id'))").fetchone() == (8,)
        store.calls.record([call_at(now + 4)])
        with old.transaction():
            old.execute("LOCK TABLE calls, misses IN SHARE ROW EXCLUSIVE MODE")
            assert old.execute("SELECT coalesce(max(id), 0) FROM calls").fetchone() == (9,)
            with open_store(address, busy_ms=50) as other, pytest.raises(StorageError, match="lock timeout"):
                other.calls.record([call_at(now)])
        with store.atomic():
            database = store._database  # type: ignore[attr-defined]
            database.settle_writes("calls", "misses")
            old.execute("SET lock_timeout = 50")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                old.execute(OLD_CALL, (now,))
        assert [each.calls for each in store.calls.usage()] == [9]
        old.execute("DELETE FROM calls WHERE id = 1")  # as an old one deletes what is old
        assert old.execute("UPDATE discoveries SET handle = 'h' WHERE id = 8").rowcount == 1
        assert len(store.calls.recent(-1)) == 8 and store.statistics().discoveries == 8
    old.close()


def test_a_store_is_divided_while_an_old_replica_writes(address: str) -> None:
    make_old(address).close()
    done = threading.Event()

    def write() -> int:
        count = 0
        with psycopg.connect(address, autocommit=True) as old:
            while not done.is_set():
                old.execute(OLD_CALL, (time.time(),), prepare=True)
                count += 1
        return count

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write) for _ in range(2)]
        with psycopg.connect(address, autocommit=True) as old:
            while not old.execute("SELECT 1 FROM calls LIMIT 1").fetchone():
                time.sleep(0.01)
        with open_store(address) as store:
            store.calls.record([call_at(time.time())])
            done.set()
            written = sum(each.result(60) for each in writers) + 1
            assert len({call.id for call in store.calls.recent(-1)}) == written
            assert [each.calls for each in store.calls.usage()] == [written]


# Rights


@pytest.fixture
def proxy(address: str) -> Iterator[Any]:
    """The connection of a role that may write every table and owns none."""
    role = f"app_{random.getrandbits(48):x}"
    with open_store(address), psycopg.connect(address, autocommit=True) as owner:
        (name,) = owner.execute("SELECT current_schema()").fetchone()
        owner.execute(f"CREATE ROLE {role}")
        owner.execute(f"GRANT USAGE ON SCHEMA {name} TO {role}")
        owner.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO {role}")
        owner.execute(f"GRANT EXECUTE ON FUNCTION make_days(integer, bigint), drop_day(text) TO {role}")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"SET ROLE {role}")
            yield connection


@requirement("trust:audit")
def test_nobody_drops_another_table_by_calling_it_a_day(proxy: Any) -> None:
    for table in ("audit", "misses", "calls", "calls_rest", "pg_class", "no such table", 'audit"; --'):
        proxy.execute("INSERT INTO days (parent, part, since, until, first) VALUES ('calls', %s, 0, 1, 0)", (table,))
        assert proxy.execute("SELECT drop_day(%s)", (table,)).fetchone() == (0,)
    assert proxy.execute("SELECT make_days(1, 5)").fetchone() == (6,)
    assert proxy.execute("SELECT count(*) FROM pg_trigger WHERE tgname = 'notes_late'").fetchone() is not None
    assert proxy.execute("SELECT to_regclass('audit') IS NULL").fetchone() == (False,)
    assert proxy.execute("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'audit'::regclass AND tgname = 'notes_late'"
                         ).fetchone() == (0,)  # fmt: skip


@requirement("trust:audit")
def test_tables_of_a_role_are_not_taken_for_those_of_the_owner(proxy: Any) -> None:
    proxy.execute("CREATE TEMP TABLE days (LIKE days)")
    proxy.execute("INSERT INTO pg_temp.days VALUES ('calls', 'audit', 0, 1, 0, 0, 0)")
    assert proxy.execute("SELECT drop_day('audit')").fetchone() == (0,)
    assert proxy.execute("SELECT to_regclass('audit') IS NULL").fetchone() == (False,)


def test_a_role_without_the_functions_records_into_the_rest(address: str, store: Store) -> None:
    role = f"app_{random.getrandbits(48):x}"
    ((name,),) = ask(store, "SELECT current_schema()")
    with psycopg.connect(address, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role}")
        owner.execute(f"GRANT USAGE ON SCHEMA {name} TO {role}")
        owner.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO {role}")
        owner.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {name} TO {role}")
    make_days(store, FIRST, 0)
    with open_store(address.replace("search_path", f"role%3D{role}%20-c%20search_path")) as own:
        assert ask(own, "SELECT current_user") == [(role,)]
        own.checkpoint()
        own.calls.record([call_at(NOON), call_at(NOON + 30 * DAY)])
        assert own.retention.prune((FIRST + 1) * DAY) == 1
        assert days_of(own) == {"calls_rest": 1}
        assert ask(own, "SELECT count(*) FROM days WHERE part = 'calls_20241004'") == [(1,)]


def test_rights_that_were_given_hold_for_days_as_well(address: str) -> None:
    role = f"app_{random.getrandbits(48):x}"
    old = make_old(address)
    (name,) = old.execute("SELECT current_schema()").fetchone()
    old.execute(f"CREATE ROLE {role}")
    old.execute(f"GRANT USAGE ON SCHEMA {name} TO {role}")
    old.execute(f"GRANT SELECT, INSERT ON calls TO {role}")
    old.execute("GRANT SELECT ON calls TO PUBLIC")
    old.execute(f"GRANT SELECT, INSERT, UPDATE ON usage TO {role}")
    with open_store(address):
        old.execute(f"SET ROLE {role}")
        old.execute("INSERT INTO profile_usage (profile, tool, calls, misses, last_at) VALUES ('ops', 't', 1, 0, 0)")
        old.execute("UPDATE profile_usage SET calls = 2")
        assert old.execute("SELECT calls FROM profile_usage").fetchone() == (2,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            old.execute("DELETE FROM profile_usage")
        old.execute(OLD_CALL, (time.time(),))
        assert old.execute("SELECT count(*) FROM calls").fetchone() == (1,)
        assert old.execute("SELECT count(*) FROM calls_rest").fetchone() is not None
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            old.execute("DELETE FROM calls")
    old.close()
