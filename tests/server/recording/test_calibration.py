"""Confidence is held against what came of it, and put right only where that helps on later ones."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from requirements import requirement

from foretool.retrieval.calibration import Platt
from foretool.server.recording import calibration
from foretool.server.recording.calibration import LEAST, Assurance, assured, recalibration
from foretool.storage.discovery_outcomes import discovery_outcomes
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, DiscoveryOutcome, Match, ToolId
from foretool.storage.stores import DiscoveryStore, Store


def drawn(n: int, worth: float, seed: int = 7) -> list[DiscoveryOutcome]:
    """Answers that said .5 to 1 and came true `worth` times as often."""
    draw = random.Random(seed)
    said = [0.5 + 0.5 * draw.random() for _ in range(n)]
    return [DiscoveryOutcome(float(at), p, 1 if draw.random() < worth * p else None) for at, p in enumerate(said)]


@requirement("gate:recorded")
def test_a_gate_that_is_too_sure_here_is_put_right() -> None:
    calibrate = recalibration(drawn(600, worth=0.6))
    assert calibrate is not None
    assert abs(calibrate(0.9) - 0.54) < 0.1
    found = assured(drawn(600, worth=0.6))
    assert found.recalibrated_error < 0.5 * found.error


def test_one_that_holds_is_left_alone_and_so_are_few_outcomes() -> None:
    assert recalibration(drawn(LEAST - 1, worth=0.6)) is None
    kept = [recalibration(drawn(400, worth=1.0, seed=seed)) for seed in range(5)]
    # Where chance makes the map look better, it may be taken; then it is close to what was said.
    assert all(each is None or abs(each(0.8) - 0.8) < 0.1 for each in kept)


def test_the_number_to_show_is_worked_out_before_and_checked_after() -> None:
    read = [DiscoveryOutcome(float(at), 0.9, 1 + at % 4 if at % 20 else None) for at in range(200)]
    found = assured(read)
    # 5 % are beyond every list: of 100 ranks the ceil(101 x .9) = 91st is 4.
    assert (found.show, found.kept, found.verdicts) == (4, 0.95, 200)


def test_nothing_on_record_promises_nothing() -> None:
    found = assured([])
    assert (found.verdicts, found.show, found.error) == (0, None, 0.0)


def told(store: Store, outcome: DiscoveryOutcome) -> None:
    """Put on record what reads as this outcome."""
    matches = (Match(ToolId("a"), 1, 1.0),)
    handle, said = str(outcome.at), outcome.probability
    found = Discovery("s", outcome.at, "t", (), None, "high", matches, 1, 1.0, handle=handle, probability=said)
    id = store.discoveries.add(found)
    if outcome.rank is not None:
        store.calls.record([Call("s", outcome.at, ToolId("a"), "u", "bridge", True, "ok", 1.0, True, "", id)])
    else:
        store.discoveries.add(Discovery("s", outcome.at + 0.5, "t", (), None, "low", (), 1, 1.0, handle=handle))


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Store]:
    """A record by which the gate is too sure."""
    with open_store(tmp_path / "store.sqlite3") as store:
        with store.atomic():
            for outcome in drawn(LEAST + 50, worth=0.5):
                told(store, outcome)
        yield store


@pytest.mark.anyio
async def test_the_record_is_read_once_in_a_while(kept: Store) -> None:
    watch = Assurance(kept)
    watch.tick()
    await watch.finished()
    assert watch.calibrate is None
    watch._due = 0.0
    watch.tick()
    assert watch._due > calibration.EVERY_S
    await watch.finished()
    assert watch.calibrate is not None and watch.calibrate(0.9) < 0.7


@pytest.mark.anyio
async def test_the_loop_goes_on_while_the_record_is_read(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, let_go = threading.Event(), threading.Event()

    def slow(log: DiscoveryStore) -> list[DiscoveryOutcome]:
        begun.set()
        assert let_go.wait(5.0), "whoever was to let it go is held up itself"
        return discovery_outcomes(log)

    monkeypatch.setattr(calibration, "discovery_outcomes", slow)
    watch = Assurance(kept)
    watch._due = 0.0
    watch.tick()
    assert await asyncio.to_thread(begun.wait, 5.0)
    watch._due = 0.0
    watch.tick()  # not a second time beside the first
    kept.calls.record(
        [Call("s", 1e6, ToolId("a"), "u", "bridge", True, "ok", 1.0, True, "", 0)]
    )  # nor does it hold the file
    assert watch.calibrate is None
    let_go.set()
    await watch.finished()
    assert watch.calibrate is not None


@pytest.mark.anyio
async def test_a_record_that_cannot_be_read_leaves_the_map_in_force(kept: Store, tmp_path: Path) -> None:
    watch = Assurance(kept)
    watch.calibrate = force = Platt(0.5, 0.0)
    kept.path = tmp_path / "notes.txt"
    kept.path.write_text("this is no database, whatever its name says; it is long enough to have a header" * 20)
    watch._due = 0.0
    watch.tick()
    await watch.finished()
    assert watch.calibrate is force
