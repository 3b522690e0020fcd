"""Confidence is compared with the outcomes of discoveries, and put right only where that helps on later ones."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from requirements import requirement

from foretool.retrieval.calibration import AS_SHIPPED, Platt, Recalibration
from foretool.server.recording import calibration
from foretool.server.recording.calibration import (
    Calibration,
    Recalibrator,
    discovery_outcomes,
    fit_calibration,
    rate_confidence,
)
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, DiscoveryOutcome, Match, ToolId
from foretool.storage.sql.discoveries import DiscoveryStore
from foretool.storage.store import Store

A, B, C = ToolId("a"), ToolId("b"), ToolId("c")


def drawn(n: int, worth: float, seed: int = 7) -> list[DiscoveryOutcome]:
    """Answers that said .5 to 1 and came true `worth` times as often."""
    draw = random.Random(seed)
    said = [0.5 + 0.5 * draw.random() for _ in range(n)]
    return [outcome(at, p, 1 if draw.random() < worth * p else None) for at, p in enumerate(said)]


def outcome(at: int, said: float | None, rank: int | None, first: str = "") -> DiscoveryOutcome:
    """What came of an answer that said the same of its first tool and of its first five."""
    return DiscoveryOutcome(float(at), said, rank, ToolId(first or f"t{at}"), said)


@requirement("gate:recorded")
def test_a_gate_that_is_too_sure_here_is_put_right() -> None:
    known = fit_calibration(drawn(600, worth=0.6)).map
    assert abs(known.first(0.9) - 0.54) < 0.1 and abs(known.shown(0.9) - 0.54) < 0.1
    found = rate_confidence(drawn(600, worth=0.6))
    assert found.recalibrated_error < 0.5 * found.error


def test_one_that_holds_is_left_alone_and_a_few_outcomes_move_it_little() -> None:
    assert fit_calibration([]) == Calibration("shipped", AS_SHIPPED)
    kept = [fit_calibration(drawn(400, worth=1.0, seed=seed)).map for seed in range(5)]
    assert all(abs(each.first(0.8) - 0.8) < 0.1 for each in kept)
    assert 0.7 < fit_calibration([outcome(0, 0.8, None)]).map.first(0.8) < 0.8
    fifty = fit_calibration(drawn(50, worth=0.6)).map
    assert 0.45 < fifty.first(0.9) < 0.75


def test_neither_one_tool_nor_a_task_that_repeats_decides_for_all_others() -> None:
    others = [outcome(at, 0.6, None if at % 2 else 1) for at in range(40)]
    always = [outcome(at, 0.6, 1, "called_by_its_own_text") for at in range(40, 640)]
    alone, beside = (fit_calibration(each).map.first(0.6) for each in (others, [*others, *always]))
    few = fit_calibration([*others, *always[:5]]).map.first(0.6)
    assert beside == pytest.approx(few)
    assert alone < beside < 0.65


@requirement("gate:drift")
def test_confidence_that_no_longer_holds_has_drifted_until_later_outcomes_agree() -> None:
    before, since = drawn(400, worth=1.0), drawn(600, worth=0.3, seed=8)
    assert fit_calibration(before).state == "recalibrated"
    drifted = fit_calibration([*before, *since[:100]])
    assert drifted.state == "drifted" and drifted.map.first(0.8) < 0.4  # by the latest alone
    assert drifted.said > 0.7 and drifted.came_true < 0.4
    told_of = rate_confidence([*before, *since[:100]])
    assert (told_of.state, told_of.said, told_of.came_true) == ("drifted", drifted.said, drifted.came_true)
    # Once the older ones are out of the window, all later ones agree.
    again = fit_calibration([*before, *since])
    assert again.state == "recalibrated" and again.map.first(0.8) < 0.4


def test_chance_alone_is_seldom_a_drift() -> None:
    states = [fit_calibration(drawn(300, worth=1.0, seed=seed)).state for seed in range(60)]
    assert states.count("drifted") <= 2


def test_the_number_to_show_is_worked_out_before_and_checked_after() -> None:
    read = [outcome(at, 0.9, 1 + at % 4 if at % 20 else None) for at in range(200)]
    found = rate_confidence(read)
    # 5 % are beyond every list: of 100 ranks the ceil(101 x .9) = 91st is 4.
    assert (found.show, found.kept, found.verdicts) == (4, 0.95, 200)


def test_nothing_on_record_promises_nothing() -> None:
    found = rate_confidence([])
    assert (found.verdicts, found.show, found.error) == (0, None, 0.0)


def told(store: Store, outcome: DiscoveryOutcome) -> None:
    """Put on record what reads as this outcome."""
    matches = (Match(outcome.first, 1, 1.0),)
    found = Discovery(
        "s", outcome.at, "t", (), None, "high", matches, 1, 1.0, handle=str(outcome.at),
        probability=outcome.probability, first_probability=outcome.first_probability,
    )  # fmt: skip
    id = store.discoveries.add(found)
    if outcome.rank is not None:
        store.calls.record([Call("s", outcome.at, outcome.first, "u", "bridge", True, "ok", 1.0, True, "", id)])
    else:
        missed = Call(
            "s", outcome.at + 0.5, ToolId("b"), "u", "bridge", True, "ok", 1.0, True, "", handle=str(outcome.at)
        )
        store.calls.record([missed])


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Store]:
    """A record by which the gate is too sure."""
    with open_store(tmp_path / "store.sqlite3") as store:
        with store.atomic():
            for outcome in drawn(250, worth=0.5):
                told(store, outcome)
        yield store


@pytest.mark.anyio
async def test_the_loop_goes_on_while_the_record_is_read(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, let_go = threading.Event(), threading.Event()

    def slow(log: DiscoveryStore) -> list[DiscoveryOutcome]:
        begun.set()
        assert let_go.wait(5.0), "whoever was to let it go is held up itself"
        return discovery_outcomes(log)

    monkeypatch.setattr(calibration, "discovery_outcomes", slow)
    watch = Recalibrator(kept)
    watch._due = 0.0
    watch.tick()
    assert await asyncio.to_thread(begun.wait, 5.0)
    watch._due = 0.0
    watch.tick()  # not a second time beside the first
    kept.calls.record(
        [Call("s", 1e6, ToolId("a"), "u", "bridge", True, "ok", 1.0, True, "", 0)]
    )  # nor does it hold the file
    assert watch.calibration.map is AS_SHIPPED
    let_go.set()
    await watch.finish()
    assert watch.calibration.map is not AS_SHIPPED


@pytest.mark.anyio
async def test_a_record_that_cannot_be_read_leaves_the_map_in_force(kept: Store, tmp_path: Path) -> None:
    watch = Recalibrator(kept)
    watch.calibration = force = Calibration("recalibrated", Recalibration(Platt(0.5, 0.0)))
    kept.path = tmp_path / "notes.txt"
    kept.path.write_text("this is no database, whatever its name says; it is long enough to have a header" * 20)
    watch._due = 0.0
    watch.tick()
    await watch.finish()
    assert watch.calibration is force


def asked(
    store: Store, at: float, *tools: ToolId, session: str = "s", handle: str = "", p: float | None = 0.7,
    rated: float | None = None,
) -> int:  # fmt: skip
    matches = tuple(Match(tool, rank, 1.0) for rank, tool in enumerate(tools, 1))
    found = Discovery(session, at, "task", (), rated, "high", matches, 100, 1.0, handle=handle, probability=p)
    return store.discoveries.add(found)


def called(
    store: Store, at: float, tool: ToolId, discovery: int = 0, *, hidden: bool = True, session: str = "s"
) -> None:
    store.calls.record([Call(session, at, tool, "u", "bridge", hidden, "ok", 1.0, True, "", discovery)])


@requirement("gate:rated")
@pytest.mark.parametrize(
    ("rated", "expected"),
    [(None, ()), (0.2, (None,)), (0.6, ()), (0.7, (2,)), (1.0, (2,))],
)
def test_a_client_that_searches_again_may_say_that_it_had_found_what_it_needed(
    rated: float | None, expected: tuple[int | None, ...]
) -> None:
    with open_store(":memory:") as store:
        asked(store, 10.0, A, B)
        asked(store, 20.0, C, rated=rated)
        assert tuple(each.rank for each in discovery_outcomes(store.discoveries)) == expected
    with open_store(":memory:") as store:  # a call says more than a rating
        called(store, 11.0, B, asked(store, 10.0, A, B))
        asked(store, 20.0, C, rated=rated)
        assert [each.rank for each in discovery_outcomes(store.discoveries)] == [2]


@requirement("rates:fifty-tasks")
def test_a_discovery_has_no_outcome_if_no_call_soon_follows_in_its_conversation() -> None:
    with open_store(":memory:") as store:
        asked(store, 10.0, A, session="one")
        asked(store, 20.0, A, session="two")
        called(store, 1821.0, C, session="two")
        asked(store, 30.0, A, session="three", handle="x")
        asked(store, 31.0, A, session="three", handle="y")
        called(store, 32.0, C, hidden=False, session="three")
        assert discovery_outcomes(store.discoveries) == []
