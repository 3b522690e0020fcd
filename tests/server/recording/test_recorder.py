"""Records reach the store in order, now or later, and a refusing store makes nobody wait."""

from __future__ import annotations

import sqlite3
import time

import pytest
from fakes import FakeUpstream, changed, config_of, failing_store, live_config
from requirements import requirement
from stored_records import calls_of

from foretool.server.config.loader import LiveConfig
from foretool.server.protocol.jsonrpc import raw
from foretool.server.recording.recorder import KEEP, Recorder
from foretool.storage.records import (
    AuditFilter,
    Call,
    ClientRecord,
    Discovery,
    Exposure,
    Miss,
    Person,
    SessionRecord,
    ToolId,
)

SESSION = SessionRecord("s" * 32, "c", "1", "legacy", "stdio", "", 1.0)
CALL = Call(
    session=SESSION.key, at=2.0, tool=ToolId("a__b"), upstream="a", via="name", hidden=True, outcome="ok",
    took_ms=1.0, sent=True, arguments="{}",
)  # fmt: skip
MISS = Miss(
    session=SESSION.key, at=2.0, tool="a__b", noticed="call", cause="rank", rank=0, of=0, query="", history=(),
    exposure=0, discovery=0, change="", recovered="called", turns=0, tokens=0,
)  # fmt: skip
EXPOSURE = Exposure(SESSION.key, 1.5, "frozen", 1, (ToolId("a__b"),), 10, "list")


def test_a_miss_is_revised_whether_it_waits_or_is_on_record() -> None:
    store, connection = failing_store()
    recorder = Recorder(store, live_config(), time.time)
    recorder.begin_session(SESSION)
    recorder.call(CALL, [MISS])
    dearer = changed(MISS, turns=1, tokens=90)
    recorder.revise([(MISS, dearer)])
    recorder.commit()
    assert [(each.turns, each.tokens, each.call) for each in store.calls.misses()] == [(1, 90, 1)]
    connection.refuse = sqlite3.SQLITE_BUSY
    recorder.settle([changed(MISS, tool="", noticed="search", discovery=4)], [(dearer, changed(MISS, turns=2))])
    recorder.revise([(changed(MISS, tool="", noticed="search", discovery=4), None)])
    connection.refuse = None
    recorder.retry()
    assert [(each.noticed, each.turns) for each in store.calls.misses()] == [("call", 2)]


def test_refused_writes_wait_in_order_and_are_written_before_the_calls_that_refer_to_them() -> None:
    store, connection = failing_store()
    recorder = Recorder(store, live_config(), time.time)
    connection.refuse = sqlite3.SQLITE_BUSY
    recorder.begin_session(SESSION)
    promised = recorder.exposure(EXPOSURE)
    assert promised < 0
    recorder.call(CALL, [changed(MISS, exposure=promised)])
    recorder.commit()
    recorder.retry()
    assert recorder.backlog.waiting == 4
    connection.refuse = 0
    recorder.commit()
    assert store.sessions.recent() == []  # only `retry` asks a store again that refused
    recorder.retry()
    assert store.sessions.recent() == [SESSION]
    assert calls_of(store, SESSION.key) == [changed(CALL, id=1)]
    (exposure,) = store.sessions.exposures(SESSION.key)
    assert [miss.exposure for miss in store.calls.misses(0.0)] == [exposure.id]
    assert recorder.backlog.waiting == 0


def test_what_refers_to_a_refused_record_later_on_gets_its_id_too() -> None:
    store, connection = failing_store()
    recorder = Recorder(store, live_config(), time.time)
    connection.refuse = sqlite3.SQLITE_BUSY
    lost = recorder.exposure(changed(EXPOSURE, tokens=2**70))
    discovery = recorder.discovery(Discovery(SESSION.key, 1.7, "write", (), None, "high", (), 10, 1.0))
    recorder.name_discovery(discovery, "H")
    connection.refuse = 0
    recorder.retry()
    recorder.call(changed(CALL, discovery=discovery), [changed(MISS, exposure=lost, discovery=discovery)])
    recorder.commit()
    assert [call.discovery for call in store.calls.recent(-1)] == [1]
    assert [(miss.exposure, miss.discovery) for miss in store.calls.misses(0.0)] == [(0, 1)]
    assert [each.handle for each in store.discoveries.recent(-1)] == ["H"]


def test_what_can_never_be_written_does_not_hold_up_the_rest() -> None:
    store, _ = failing_store()
    recorder = Recorder(store, live_config(), time.time)
    recorder.begin_session(SESSION)
    recorder.call(CALL)
    recorder.call(changed(CALL, took_ms=2**70))
    recorder.call(CALL, [MISS])
    recorder.commit()
    assert len(store.calls.recent(-1)) == 2
    assert [miss.call for miss in store.calls.misses(0.0)] == [2]
    assert recorder.backlog.dropped == 1


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY])
def test_nothing_is_raised_and_questions_get_the_answer_of_an_empty_store(code: int) -> None:
    store, connection = failing_store()
    recorder = Recorder(store, live_config(), time.time)
    connection.refuse = code
    recorder.begin_session(SESSION)
    recorder.add_client_relist(ClientRecord("c", "1", "legacy", 1, 1, 2.0, 3.0))
    recorder.end_session(SESSION.key)
    assert recorder.client("c", "1", "legacy") is None
    assert (recorder.usage(), recorder.tasks(5, ""), recorder.working_set("x")) == ([], [], None)
    recorder.call(CALL)
    recorder.commit()


def test_what_waits_is_bounded_and_the_oldest_go_first() -> None:
    store, connection = failing_store()
    recorder = Recorder(store, live_config(), time.time)
    connection.refuse = sqlite3.SQLITE_FULL
    for number in range(KEEP + 10):
        recorder.call(changed(CALL, at=float(number)), [MISS] if number == KEEP else [])
    recorder.commit()
    assert recorder.backlog.dropped == 10
    connection.refuse = 0
    recorder.retry()
    kept = store.calls.recent(-1)
    assert (len(kept), kept[-1].at) == (KEEP, 10.0)
    (miss,) = store.calls.misses(0.0)
    call = store.calls.get(miss.call)
    assert call is not None
    assert call.at == float(KEEP)


@requirement("record:levels")
@pytest.mark.parametrize(("record", "kept"), [("off", ""), ("shape", '{"a":"string"}'), ("full", '{"a":"[KEY]"}')])
def test_what_is_kept_of_arguments_follows_the_setting(record: str, kept: str) -> None:
    upstream = FakeUpstream("calc", entry={"env": {"KEY": "s3cr3t-value"}})
    recorder = Recorder(failing_store()[0], LiveConfig(config_of(upstream, record=record)), time.time)
    assert recorder.describe_arguments(raw({"a": "s3cr3t-value"})) == kept


@requirement("trust:audit")
def test_who_called_is_kept_with_the_call_and_waits_with_it() -> None:
    store, connection = failing_store()
    recorder = Recorder(store, live_config(audit=True), time.time)
    recorder.begin_session(SESSION, Person("oauth:1", "ann"))
    recorder.begin_session(SESSION)  # as after a store that could not be used
    connection.refuse = sqlite3.SQLITE_BUSY
    recorder.call(CALL, [MISS])
    recorder.call(changed(CALL, session="other", outcome="refused"))
    recorder.commit()
    connection.refuse = 0
    assert store.audit.find(AuditFilter()) == []
    recorder.retry()
    first, second = store.audit.find(AuditFilter())[::-1]
    assert (first.principal, first.name, first.client, first.target, first.outcome) == (
        "oauth:1",
        "ann",
        "c",
        "a__b",
        "ok",
    )
    assert (second.principal, second.name, second.outcome) == ("", "", "refused")
    assert len(store.calls.recent(-1)) == 2 and recorder.backlog.waiting == 0


def test_a_call_that_can_never_be_written_takes_no_entry_of_another_with_it() -> None:
    store, _ = failing_store()
    recorder = Recorder(store, live_config(audit=True), time.time)
    recorder.begin_session(SESSION, Person("oauth:1", "ann"))
    recorder.call(changed(CALL, discovery=2**70))
    recorder.call(changed(CALL, tool=ToolId("c__d")))
    recorder.commit()
    assert [call.tool for call in store.calls.recent(-1)] == ["c__d"]
    assert [each.target for each in store.audit.find(AuditFilter())] == ["c__d"]


@requirement("storage:commit")
def test_records_behind_answers_are_written_with_the_next_second_or_when_many_wait() -> None:
    store, _ = failing_store()
    recorder = Recorder(store, live_config(commit="behind"), time.time)
    recorder.begin_session(SESSION)
    promised = recorder.exposure(EXPOSURE)
    recorder.call(CALL, [changed(MISS, exposure=promised)])
    recorder.commit()
    assert store.calls.recent(-1) == [] and store.sessions.recent() == [] and recorder.backlog.waiting == 4
    recorder.retry()
    (miss,) = store.calls.misses(0.0)
    assert store.sessions.exposure(miss.exposure) is not None and miss.call == store.calls.recent(1)[0].id
    assert recorder.backlog.waiting == 0 and recorder.backlog.failures == 0
    for _ in range(2000):
        recorder.call(CALL)
    recorder.commit()
    assert recorder.backlog.waiting == 0
