"""The log is added up part by part: whatever the parts are, nothing is left out, and nothing counts twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace
from stored_records import rows

from foretool.server.recording.costs import GAP_S, add_costs, add_next, read_costs
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Exposure, Miss, Prompt, Selection, SessionRecord, ToolId
from foretool.storage.store import Store

START = 1_790_000_000.0
CALLED = Call("", 0.0, ToolId("s__a"), "s", "name", False, "ok", 1.0, True, "")
END = START + 200 * GAP_S


def fill(store: Store, seed: int, count: int = 300) -> None:
    """Write sessions that run beside each other, pause, search, miss and are told things."""
    choose = random.Random(seed)
    at = START
    for number in range(6):
        if number:  # one is not on record
            store.sessions.begin(SessionRecord(f"s{number}", f"c{number % 3}", "1", "modern", "stdio", "", at))
    for _ in range(count):
        at += choose.choice((1.0, 20.0, 400.0, GAP_S * 0.7, GAP_S * 1.2))
        key = f"s{choose.randrange(6)}"
        match choose.randrange(8):
            case 0:
                store.sessions.add_exposure(Exposure(key, at, "frozen", 1, (), choose.randrange(500), "list"))
            case 1:
                store.sessions.add_exposure(Exposure(key, at, "frozen", 1, (), 20, "hint"))
            case 2:
                store.discoveries.add(Discovery(key, at, f"task {at}", (), None, "high", (), 90, 1.0))
            case 3:
                store.tasks.add_prompt(Prompt(at, f"do {at}", key))
            case 4:
                miss = Miss(key, at, "s__b", "call", "rank", 1, 2, "", (), 0, 0, "", "called", 0, 0, call=1)
                store.calls.record([replace(CALLED, session=key, at=at, hidden=True)], [miss])
            case _:
                outcome = choose.choice(("ok", "ok", "tool_error", "refused"))
                store.calls.record([replace(CALLED, session=key, at=at, outcome=outcome)])


def test_parts_of_every_length_come_to_the_same() -> None:
    found = []
    for most in (1, 3, 50, 10_000):
        with open_store(":memory:") as store:
            fill(store, 7)
            whole = read_costs(store, 0.0, END, 100)
            while add_next(store, END, most):
                pass
            assert add_costs(read_costs(store, 0.0, END, 100), "").calls == add_costs(whole, "").calls
            found.append(read_costs(store, 0.0, END, 100))
    assert found[-1] == whole
    counts = [(each.day, each.client, each.calls, each.hidden, each.misses, each.discoveries) for each in whole]
    for each in found:
        assert counts == [(row.day, row.client, row.calls, row.hidden, row.misses, row.discoveries) for row in each]
    assert found[0] == found[1] == found[2] == whole


def test_what_is_added_up_while_it_goes_on_comes_to_the_same() -> None:
    with open_store(":memory:") as live, open_store(":memory:") as late:
        for seed in range(5):
            for store in (live, late):
                fill(store, seed, 40)
            add_next(live, START + 1000.0 * seed, 5)
        assert add_costs(read_costs(live, 0.0, END, 1), "").calls == add_costs(read_costs(late, 0.0, END, 1), "").calls


def test_of_two_processes_one_adds_a_part(path: Path) -> None:
    with open_store(path) as one, open_store(path) as two:
        fill(one, 1)
        part = two.costs.part(10)
        add_next(one, END, 10)
        assert not two.costs.add(part, [], {}, 0.0)


@pytest.mark.parametrize("parts", [0, 1, 100])
def test_calls_are_counted_without_reading_them(parts: int, path: Path) -> None:
    with open_store(path) as store:
        fill(store, 3)
        for _ in range(parts):
            add_next(store, END, 20)
        count = rows(path, "SELECT count(*) FROM calls")[0][0]
        assert store.statistics().calls == count
        assert store.costs.waiting() == (0 if parts == 100 else count if not parts else max(count - 20, 0))
        store.forgetting.forget(Selection(session="s1"))
        left = rows(path, "SELECT count(*) FROM calls")[0][0]
        assert store.statistics().calls == left < count


def test_what_is_deleted_counts_no_more_and_what_comes_then_does(path: Path) -> None:
    with open_store(path) as store:
        fill(store, 3)
        while add_next(store, END, 20):
            pass
        store.retention.prune(START + 30 * GAP_S)
        assert store.statistics().calls == rows(path, "SELECT count(*) FROM calls")[0][0]
        store.retention.prune(END * 2)
        assert store.statistics().calls == 0
        assert store.costs.sums(0.0) == []
        fill(store, 4)
        assert store.statistics().calls == rows(path, "SELECT count(*) FROM calls")[0][0]
        while add_next(store, END, 20):
            pass
        sums = sum(each.calls for each in store.costs.sums(0.0))
        assert sums == store.statistics().calls == rows(path, "SELECT count(*) FROM calls")[0][0]


def test_what_is_forgotten_is_added_up_no_more(store: Store) -> None:
    fill(store, 3)
    while add_next(store, END, 20):
        pass
    store.forgetting.forget(Selection(since=START + GAP_S))
    rest = read_costs(store, 0.0, END, 1)
    assert add_costs(rest, "").calls == len(store.calls.recent(-1))
    store.forgetting.forget(Selection(everything=True))
    assert read_costs(store, 0.0, END, 1) == []
