"""What siblings say for a tool, by hand, and what a server can gain by it at most."""

from __future__ import annotations

import math

import pytest

np = pytest.importorskip("numpy")

from foretool.retrieval.rankers.dense import MOST, SHARE, SOFTNESS, Siblings  # noqa: E402


def floats(*values: float):
    return np.array(values, np.float32)


def soft_mean(*scores: float) -> float:
    return SHARE * SOFTNESS * math.log(sum(math.exp(each / SOFTNESS) for each in scores) / len(scores))


def test_the_lifts_by_hand() -> None:
    # The first server fits best; the second is less than MOST behind it, the third more.
    found = Siblings([(0, 1), (2, 3), (4,)]).lifts(floats(3.0, 1.0, 2.5, 0.5, -2.0))
    behind = soft_mean(3.0, 1.0) - soft_mean(2.5, 0.5)
    assert 0 < behind < MOST
    np.testing.assert_allclose(found, [MOST, MOST, MOST - behind, MOST - behind, 0.0], atol=1e-5)


def test_a_server_alone_lifts_nothing() -> None:
    assert Siblings([(0, 1, 2)]).lifts(floats(3.0, 1.0, 2.0)) is None
    assert Siblings([(0, 1), ()]).lifts(floats(3.0, 1.0)) is None
    assert Siblings().lifts(floats(1.0)) is None


def test_of_two_equal_tools_the_one_whose_siblings_fit_comes_first() -> None:
    total = floats(2.0, 1.5, 2.0, -1.5)
    found = total + Siblings([(0, 1), (2, 3)]).lifts(total)
    assert found[0] > found[2]


def test_copies_of_a_tool_gain_a_server_nothing() -> None:
    one = Siblings([(0,), (1, 2)]).lifts(floats(2.0, 2.5, 0.0))
    many = Siblings([tuple(range(500)), (500, 501)]).lifts(floats(*[2.0] * 500, 2.5, 0.0))
    np.testing.assert_allclose(one[0], many[0], atol=1e-4)
    np.testing.assert_allclose(one[1], many[500], atol=1e-4)


def test_however_high_a_score_a_server_gains_at_most_so_much() -> None:
    found = Siblings([(0, 1), (2,)]).lifts(floats(1e30, 0.0, 1.0))
    assert found.max() == pytest.approx(MOST)
    assert np.isfinite(found).all()


def test_a_dropped_tool_counts_as_one_that_does_not_fit() -> None:
    found = Siblings([(0, 1), (2, 3)]).lifts(floats(-np.inf, -np.inf, 1.0, 0.5))
    np.testing.assert_allclose(found, [0.0, 0.0, MOST, MOST], atol=1e-5)
