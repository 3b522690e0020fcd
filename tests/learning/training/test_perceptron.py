"""Fitting a small network: its slope against finite differences, and that it learns what a line cannot."""

from __future__ import annotations

import numpy as np
import pytest

from foretool.learning.rankers.dtdr_model import Network
from foretool.learning.training.perceptron import NONE, NetworkPlan, Samples, fit_network, gradients, pad_lists
from foretool.retrieval.model_format import Floats
from foretool.retrieval.score_sum import softmax

STILL = NetworkPlan(hidden=8, epochs=200, batch=4, rate=2e-2, decay=0.0, dropout=0.0, blur=0.0)
# The class is which of two rows of the history stand beside which of two tasks: exclusive or.
XOR = Samples(
    tasks=np.asarray([0, 0, 1, 1]),
    rows=np.asarray([[0], [1], [0], [1]]),
    targets=np.asarray([[0, NONE], [1, NONE], [1, NONE], [0, 1]]),
)
WANTED = np.asarray([[1, 0], [0, 1], [0, 1], [0.5, 0.5]], np.float32)
TASKS = np.eye(2, dtype=np.float32)


def logits(weights: Network, samples: Samples) -> Floats:
    hidden = TASKS[samples.tasks] @ weights.query + weights.history[samples.rows].sum(1) + weights.bias
    found: Floats = np.maximum(hidden, 0) @ weights.out + weights.out_bias
    return found


def test_it_learns_what_no_line_can_from_task_and_history() -> None:
    weights = fit_network(TASKS, 2, 2, lambda draw: XOR, STILL, np.random.default_rng(3))
    assert np.allclose(softmax(logits(weights, XOR)), WANTED, atol=0.05)


def test_the_same_seed_gives_the_same_network() -> None:
    one, other = (fit_network(TASKS, 2, 2, lambda draw: XOR, STILL, np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(one.out, other.out) and np.array_equal(one.history, other.history)


@pytest.mark.parametrize("name", ["query", "history", "bias", "out", "out_bias"])
def test_every_slope_is_that_of_the_mean_cross_entropy(name: str) -> None:
    draw = np.random.default_rng(5)
    start = fit_network(TASKS, 2, 2, lambda draw: XOR, NetworkPlan(hidden=8, epochs=1, batch=4), draw)
    weights = Network(*(each.astype(np.float64) for each in start))
    dense, rows, history = gradients(weights, TASKS, XOR, np.arange(4), STILL, draw)
    assert rows.tolist() == [0, 1]
    slope = history if name == "history" else dense[name]
    array, step = getattr(weights, name), 1e-5
    for place in np.ndindex(array.shape):
        array[place] += step
        above = loss(weights)
        array[place] -= 2 * step
        below = loss(weights)
        array[place] += step
        assert slope[place] == pytest.approx((above - below) / (2 * step), abs=1e-4)


def loss(weights: Network) -> float:
    return float(-(WANTED * np.log(softmax(logits(weights, XOR)))).sum() / 4)


def test_a_sample_without_a_task_learns_from_history_alone() -> None:
    alone = Samples(np.full(2, -1), np.asarray([[0], [1]]), np.asarray([[0], [1]]))
    weights = fit_network(TASKS, 2, 2, lambda draw: alone, STILL, np.random.default_rng(3))
    hidden = np.maximum(weights.history + weights.bias + weights.unasked, 0)
    assert np.allclose(softmax(hidden @ weights.out + weights.out_bias), np.eye(2), atol=0.05)


def test_lists_are_filled_up_to_the_longest() -> None:
    assert pad_lists([[1], [2, 3], []], 9).tolist() == [[1, 9], [2, 3], [9, 9]]
    assert pad_lists([], 9).shape == (0, 0)
