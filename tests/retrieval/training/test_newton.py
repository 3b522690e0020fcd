"""Newton's method meets what is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from foretool.retrieval.training.newton import logistic_regression, minimize


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
