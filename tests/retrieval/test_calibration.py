"""Calibration by hand, and the promise of the conformal bound by drawing."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from requirements import requirement

from foretool.retrieval.calibration import (
    calibration_error,
    conformal_k,
    coverage,
    platt,
    reliability,
)


def test_the_error_is_the_mean_distance_of_each_bin() -> None:
    outcomes = [(0.15, 0.0), (0.15, 1.0), (0.95, 1.0), (0.95, 1.0)]
    assert reliability(outcomes) == [(0.15, 0.5, 2), (0.95, 1.0, 2)]
    assert calibration_error(outcomes) == pytest.approx((2 * 0.35 + 2 * 0.05) / 4)
    assert calibration_error([]) == 0.0


def test_the_fit_is_where_its_gradient_is_zero() -> None:
    # Said .5 (log-odds 0) eight times, true six times, prior 4: 8 (p - .75) + 4 shift = 0 has the root .33436
    found = platt([(0.5, 1.0)] * 6 + [(0.5, 0.0)] * 2)
    assert 8 * (found(0.5) - 0.75) + 4 * found.shift == pytest.approx(0.0, abs=1e-9)
    assert (found.slope, found.shift) == pytest.approx((1.0, 0.33436), abs=1e-5)


def test_what_is_said_too_surely_comes_out_lower_and_in_order() -> None:
    outcomes = [(said, float(at % 10 < true)) for said, true in ((0.9, 6), (0.6, 4)) for at in range(1000)]
    found = platt(outcomes)
    assert found(0.9) == pytest.approx(0.6, abs=0.03)
    assert found(0.6) == pytest.approx(0.4, abs=0.03)


def test_a_few_outcomes_move_little_and_none_nothing() -> None:
    assert platt([(0.9, 0.0)])(0.9) > 0.7
    assert platt([])(0.42) == pytest.approx(0.42)


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0.0, 1.0])), max_size=60))
@settings(max_examples=100)
def test_the_map_never_falls_and_stays_a_probability(outcomes: list[tuple[float, float]]) -> None:
    found = platt(outcomes)
    values = [found(step / 20) for step in range(21)]
    assert all(0.0 <= value <= 1.0 for value in values)
    assert all(a <= b + 1e-9 for a, b in pairwise(values))


def test_k_is_the_quantile_of_the_ranks() -> None:
    # n = 9: the ceil(10 x .8) = 8th smallest of 1..9 is 8.
    assert conformal_k([9, 8, 7, 6, 5, 4, 3, 2, 1], 0.2) == 8
    assert conformal_k([1, 1, 1, 1, 1, 1, 1, 2, None], 0.2) == 2
    assert conformal_k([1, 1, 1, 1, 1, 1, None, None, None], 0.2) is None
    assert conformal_k([1, 1, 1], 0.1) is None  # too few to say
    assert conformal_k([], 0.1) is None


@requirement("gate:conformal")
def test_no_more_than_eps_of_the_needed_tools_are_hidden() -> None:
    draw = random.Random(7)
    eps, missed, asked = 0.1, 0, 0
    for _ in range(400):
        ranks: list[int | None] = [min(int(draw.expovariate(0.3)) + 1, 40) for _ in range(101)]
        k = conformal_k(ranks[:100], eps)
        assert k is not None
        missed += coverage(ranks[100:], k) < 1.0
        asked += 1
    # 400 draws at 10 %: three standard errors are 4.5 %.
    assert missed / asked <= eps + 0.045
