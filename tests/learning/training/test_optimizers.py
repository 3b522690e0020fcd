"""Adam against steps worked out by hand; Newton's method meets what is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from foretool.learning.training.optimizers import Adam, RowAdam, logistic_regression, minimize

# Slopes 1 and then 3, rate .1. First moments .1 and .09 + .3 = .39, over 1 - .9 and 1 - .81: 1 and 2.0526. Second
# moments .001 and .000999 + .009 = .009999, over 1 - .999 and 1 - .998001: 1 and 5.0020, its root 2.2365.
TWO_STEPS = 1.0 - 0.1 * 1.0 - 0.1 * 2.0526316 / 2.2365151


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_two_steps_are_those_of_the_paper(kind: type) -> None:
    values = np.ones(1, kind)
    adam = Adam(values)
    for slope in (1.0, 3.0):
        adam.step(np.asarray([slope], kind), 0.1)
    assert values == pytest.approx([TWO_STEPS], abs=1e-6)
    assert adam.values is values and values.dtype == kind


def test_the_first_step_is_the_rate_against_the_slope_and_the_decay() -> None:
    values = np.asarray([1.0, -2.0], np.float32)
    Adam(values).step(np.asarray([0.5, -3.0], np.float32), 0.1, decay=0.5)
    assert values == pytest.approx([1.0 * 0.95 - 0.1, -2.0 * 0.95 + 0.1], abs=1e-6)


def test_rows_without_a_slope_stay_and_count_no_step() -> None:
    values = np.ones((3, 1), np.float32)
    adam = RowAdam(values)
    adam.step(np.asarray([0, 2]), np.asarray([[1.0], [-4.0]], np.float32), 0.1, decay=0.5)
    assert values == pytest.approx(np.asarray([[0.85], [1.0], [1.05]]), abs=1e-6)
    adam.step(np.asarray([1]), np.asarray([[4.0]], np.float32), 0.1)
    assert values == pytest.approx(np.asarray([[0.85], [0.9], [1.05]]), abs=1e-6)


def test_two_steps_of_one_row_are_those_of_the_whole() -> None:
    values = np.ones((2, 1), np.float32)
    adam = RowAdam(values)
    for slope in (1.0, 3.0):
        adam.step(np.asarray([1]), np.asarray([[slope]], np.float32), 0.1)
    assert values == pytest.approx(np.asarray([[1.0], [TWO_STEPS]]), abs=1e-5)


def test_a_parabola_takes_one_step_and_a_steep_start_is_halved() -> None:
    def parabola(at: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return float((at[0] - 3.0) ** 2), 2.0 * (at - 3.0), np.asarray([[2.0]])

    assert minimize(parabola, np.zeros(1)) == pytest.approx([3.0])

    def steep(at: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        x = at[0]
        return float(np.log(np.cosh(x))), np.tanh(at), np.asarray([[1.0 / np.cosh(x) ** 2]])

    # A whole step from 2 leads to -11.6, where the loss is larger.
    assert minimize(steep, np.asarray([2.0])) == pytest.approx([0.0], abs=1e-6)


def test_logistic_regression_meets_the_odds() -> None:
    inputs = np.asarray([[1.0, 1.0], [1.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    found = logistic_regression(inputs, np.asarray([0.75, 0.75, 0.5, 0.5]), np.ones(4), 1e-9)
    assert found == pytest.approx([np.log(3), 0.0], abs=1e-6)
    twice = logistic_regression(inputs[:, 1:], np.asarray([1.0, 0.0, 0.0, 0.0]), np.asarray([3.0, 1.0, 0.0, 0.0]), 1e-9)
    assert twice == pytest.approx([np.log(3)], abs=1e-6)
