"""What lists, answers and hints have cost is added up as said."""

from __future__ import annotations

from datetime import datetime

import pytest
from msgspec.structs import replace
from requirements import requirement

from foretool.server.recording.costs import (
    FEWEST,
    UNKNOWN,
    Costs,
    add_costs,
    add_next,
    by_client,
    estimate_own_search,
    read_costs,
    say_saving,
)
from foretool.storage.episodes import GAP_S
from foretool.storage.opening import open_store
from foretool.storage.records import PERIOD_S, Call, Discovery, Exposure, Match, Miss, SessionRecord, ToolId
from foretool.storage.store import Store

A, B = ToolId("s__a"), ToolId("s__b")
DAY = datetime(2026, 3, 4, 12).timestamp()


def listed(store: Store, at: float, tokens: int, session: str = "s1") -> None:
    store.sessions.add_exposure(Exposure(session, at, "frozen", 1, (A,), tokens, "list"))


def called(at: float, tool: ToolId, *, hidden: bool = False) -> Call:
    return Call("s1", at, tool, "s", "name", hidden, "ok", 1.0, True, "")


def begin(store: Store, key: str = "s1", client: str = "cursor") -> None:
    store.sessions.begin(SessionRecord(key, client, "1", "legacy", "stdio", "", DAY))


def test_what_one_task_cost_is_counted_at_each_of_its_turns() -> None:
    with open_store(":memory:") as store:
        begin(store)
        listed(store, DAY, 300)
        answer = Discovery("s1", DAY + 1, "do b", (), None, "high", (Match(B, 1, 1.0),), 80, 1.0)
        store.discoveries.add(answer)
        miss = Miss("s1", DAY + 2, B, "discovery", "budget", 1, 2, "", (), 1, 1, "", "discovered", 1, 80, call=1)
        store.calls.record([called(DAY + 2, B, hidden=True)], [miss])
        store.sessions.add_exposure(Exposure("s1", DAY + 3, "frozen", 1, (A,), 20, "hint"))
        store.calls.record([called(DAY + 4, A)])
        (row,) = read_costs(store, 0.0, DAY + 5, full=1000)
    # Turns: the discovery reads 300, the first call 300 + 80, the second 300 + 80 + 20.
    assert row == Costs(
        "2026-03-04", "cursor", tasks=1, calls=2, hidden=1, misses=1, discoveries=1, list_tokens=900, said_tokens=100,
        read_tokens=1080, full_tokens=2000,
    )  # fmt: skip
    assert (row.miss_rate, row.per_task(row.hidden), row.saved) == (None, None, None), "one task makes no rate"


def many(store: Store, tasks: int, *, ends: bool = True) -> None:
    """So many tasks in sessions of their own: a search, a call of what it found, and a search that nothing follows."""
    for number in range(tasks):
        key, at = f"s{number}", DAY + 10 * number
        begin(store, key)
        listed(store, at, 300, key)
        store.discoveries.add(Discovery(key, at + 1, "do b", (), None, "high", (Match(B, 1, 1.0),), 80, 1.0))
        miss = Miss(key, at + 2, B, "discovery", "budget", 1, 2, "", (), 1, 1, "", "discovered", 1, 80)
        store.calls.record([Call(key, at + 2, B, "s", "bridge", True, "ok", 1.0, True, "")], [replace(miss, call=1)])
        store.discoveries.add(Discovery(key, at + 3, "only looks", (), None, "high", (Match(B, 1, 1.0),), 80, 1.0))
        store.calls.record([], [replace(miss, tool="", noticed="nothing_found", at=at + 3)])
        if ends:
            store.sessions.end(key, at + 4)


@requirement("rates:fifty-tasks")
def test_rates_come_from_fifty_tasks_whose_end_is_known() -> None:
    with open_store(":memory:") as store:
        many(store, FEWEST)
        (row,) = read_costs(store, 0.0, DAY + 1000, full=1000)
    assert (row.tasks, row.rated_tasks, row.calls, row.misses, row.discoveries) == (50, 50, 50, 100, 100)
    # What followed the last call of each session belongs to no task.
    assert (row.rated_calls, row.rated_misses, row.rated_discoveries) == (50, 50, 50)
    assert (row.miss_rate, row.per_task(row.rated_discoveries)) == (1.0, 1.0)
    assert row.saved == pytest.approx(1 - (300 + 380) / 1000)


@requirement("rates:fifty-tasks")
@pytest.mark.parametrize(("tasks", "ends"), [(FEWEST - 1, True), (FEWEST, False)])
def test_without_fifty_such_tasks_there_is_no_rate(tasks: int, ends: bool) -> None:
    with open_store(":memory:") as store:
        many(store, tasks, ends=ends)
        (row,) = read_costs(store, 0.0, DAY + 1000, full=1000)
        estimate_own_search([row], 100, 50.0)
    assert (row.tasks, row.calls, row.misses) == (tasks, tasks, 2 * tasks)
    assert row.rated_tasks == (tasks if ends else 0)
    assert (row.miss_rate, row.saved, row.saved_of_own_search, row.per_task(5)) == (None,) * 4


def test_a_new_task_does_not_read_what_an_earlier_one_was_told() -> None:
    with open_store(":memory:") as store:
        begin(store)
        listed(store, DAY, 100)
        store.sessions.add_exposure(Exposure("s1", DAY + 1, "frozen", 1, (B,), 50, "prompt"))
        later = DAY + GAP_S + 10
        store.calls.record([called(DAY + 2, B), called(later, A)])
        (row,) = read_costs(store, 0.0, later, full=10)
    assert (row.tasks, row.said_tokens, row.read_tokens) == (2, 50, (100 + 50) + 100)


def test_days_and_clients_are_apart_and_the_time_is_narrowed() -> None:
    with open_store(":memory:") as store:
        begin(store)
        begin(store, "s2", "")
        listed(store, DAY - 86_400, 10)
        store.calls.record([called(DAY - 86_400, A), called(DAY, A)])
        store.calls.record([Call("s2", DAY, A, "s", "name", False, "ok", 1.0, True, "")])
        store.sessions.add_exposure(Exposure("elsewhere", DAY, "frozen", 0, (A,), 7, "prompt"))
        rows = read_costs(store, 0.0, DAY + 5, full=1)
        assert [(row.day, row.client, row.calls) for row in rows] == [
            ("2026-03-04", "cursor", 1), ("2026-03-04", "(unnamed)", 1), ("2026-03-04", UNKNOWN, 0),
            ("2026-03-03", "cursor", 1),
        ]  # fmt: skip
        assert [row.day for row in read_costs(store, DAY - 60, DAY + 5, full=1)] == ["2026-03-04"] * 3
    sums = by_client(rows)
    assert [(name, row.calls, row.said_tokens) for name, row in sums.items()] == [
        ("cursor", 2, 0), ("(unnamed)", 1, 0), (UNKNOWN, 0, 7),
    ]  # fmt: skip
    assert add_costs(rows, "").calls == 3


def test_past_calls_keep_their_price_when_the_tools_change() -> None:
    with open_store(":memory:") as store:
        begin(store)
        listed(store, DAY - 2 * PERIOD_S, 300)
        for at, tokens in ((DAY, 500), (DAY + 60, 1000), (DAY + 90, 400), (DAY + 6 * PERIOD_S, 400)):
            store.costs.add_size(at, tokens)
        prices = {DAY - PERIOD_S: 500, DAY: 500, DAY + 59: 500, DAY + 61: 1000, DAY + 91: 400, DAY + 4 * PERIOD_S: 400}
        for number, at in enumerate(prices, 1):
            store.calls.record([called(at, A)])
            (row,) = read_costs(store, 0.0, at, full=7)
            assert row.full_tokens == sum(list(prices.values())[:number])
        while add_next(store, DAY + 100 * PERIOD_S, 2):
            pass
        (row,) = read_costs(store, 0.0, DAY + 100 * PERIOD_S, full=7)
        assert row.full_tokens == 3300, "what is added up has the same prices"


@pytest.mark.parametrize("is_added_up", [False, True])
def test_a_large_server_that_was_there_for_a_minute_changes_no_other_call(is_added_up: bool) -> None:
    with open_store(":memory:") as store:
        begin(store)
        listed(store, DAY - 1, 300)
        store.costs.add_size(DAY - 60, 25_000)
        for start in (DAY + 100, DAY + 300, DAY + 500):
            store.costs.add_size(start, 42_000)
            store.costs.add_size(start + 15, 25_000)
        times = [DAY + 20 * number for number in range(28)]
        store.calls.record([called(at, A) for at in times])
        while is_added_up and add_next(store, DAY + 100 * PERIOD_S, 10):
            pass
        (row,) = read_costs(store, 0.0, DAY + 100 * PERIOD_S, full=7)
    assert row.full_tokens == 25 * 25_000 + 3 * 42_000 == row.rated_full_tokens


def test_without_any_size_on_record_calls_cost_what_all_tools_take_today_and_then_the_first_size() -> None:
    with open_store(":memory:") as store:
        begin(store)
        listed(store, DAY - 1, 300)
        store.calls.record([called(DAY, A)])
        add_next(store, DAY + 100 * PERIOD_S, 10)
        (row,) = read_costs(store, 0.0, DAY + 100 * PERIOD_S, full=7)
        assert row.full_tokens == 7
        store.costs.add_size(DAY + 50, 9)
        (row,) = read_costs(store, 0.0, DAY + 100 * PERIOD_S, full=7)
        assert row.full_tokens == 9


def test_a_program_that_calls_and_never_lists_would_have_read_nothing_of_all_tools() -> None:
    with open_store(":memory:") as store:
        begin(store)
        store.costs.add_size(DAY - 60, 25_000)
        store.calls.record([called(DAY, A)])
        (row,) = read_costs(store, 0.0, DAY + 5, full=1000)
    assert (row.calls, row.read_tokens, row.full_tokens) == (1, 0, 0)


def test_a_client_that_searches_in_place_of_listing_would_have_read_all_tools() -> None:
    with open_store(":memory:") as store:
        begin(store)
        store.costs.add_size(DAY - 60, 25_000)
        store.discoveries.add(Discovery("s1", DAY - 5, "add", (), None, "high", (), 300, 1.0))
        store.calls.record([called(DAY, A)])
        (row,) = read_costs(store, 0.0, DAY + 5, full=1000)
    assert (row.calls, row.read_tokens, row.full_tokens) == (1, 300, 25_000)


def test_a_call_that_foretool_refused_is_not_one_that_all_tools_would_have_cost() -> None:
    with open_store(":memory:") as store:
        begin(store)
        listed(store, DAY, 300)
        store.calls.record([replace(called(DAY + 1, B, hidden=True), outcome="refused"), called(DAY + 2, B)])
        (row,) = read_costs(store, 0.0, DAY + 5, full=1000)
    assert (row.calls, row.refused, row.read_tokens, row.full_tokens) == (2, 1, 600, 1000)
    assert say_saving(row) == (
        "In 2 calls models read about 600 tokens of lists, answers and hints, about 300 of them at 1 refused call. With"
        " all tools listed as they were then, the 1 call that reached a server would have read 1,000: foretool saved"
        " 400."
    )
