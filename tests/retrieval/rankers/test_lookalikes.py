"""What tools of other servers that do the same say for a tool, by hand, and what a flood of copies gains."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from foretool.retrieval.rankers.lookalikes import DOUBT, SHARE, lookalike_lifts  # noqa: E402

ALIKE = 0.5


def unit(*angles: float):
    """One vector for each angle in degrees."""
    return np.array([[np.cos(np.radians(each)), np.sin(np.radians(each))] for each in angles], np.float32)


def lifts(scores: list[float], servers: list[int], rows) -> dict[int, float]:
    return lookalike_lifts(np.array(scores, np.float32), np.array(servers), lambda slots: rows[slots], ALIKE)


def likeness(degrees: float) -> float:
    return max(0.0, (np.cos(np.radians(degrees)) - ALIKE) / (1.0 - ALIKE))


def test_the_lifts_by_hand() -> None:
    found = lifts([4.0, 1.0, 2.0], [0, 1, 2], unit(0, 30, 120))
    one = likeness(30)
    assert found == pytest.approx(
        {0: SHARE * one * 1.0 / (one + DOUBT), 1: SHARE * one * 4.0 / (one + DOUBT)}, rel=1e-4
    )


def test_tools_of_one_server_say_nothing_for_each_other() -> None:
    assert lifts([4.0, 3.0, 1.0], [0, 0, 1], unit(0, 0, 90)) == {}


def test_only_tools_that_fit_are_lifted_and_heard() -> None:
    assert lifts([4.0, -1.0, -np.inf], [0, 1, 2], unit(0, 0, 0)) == {}
    assert lifts([], [], unit()) == {}
    assert lifts([1.0], [0], unit(0)) == {}


def test_a_flood_of_copies_speaks_once() -> None:
    one = lifts([3.0, 2.0], [0, 1], unit(0, 20))
    many = lifts([3.0] + [2.0] * 40, [0] + [1] * 40, unit(*[0] + [20] * 40))
    assert many[0] == pytest.approx(one[0], rel=1e-4)
    assert many[40] == pytest.approx(one[1], rel=1e-4)


def test_a_lift_stays_below_its_share_of_the_best_score() -> None:
    found = lifts([5.0] * 20, list(range(20)), unit(*[0] * 20))
    assert all(0.0 < lift < SHARE * 5.0 for lift in found.values())
