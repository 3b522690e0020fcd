"""The arithmetic of the gate's benchmark, by hand."""

from __future__ import annotations

import random
from math import exp

import pytest

pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

from bench.retrieval.gate import Sample, fit, floor, merge_gates, promise, sampled
from foretool.retrieval.confidence import Gate, Logistic


def test_the_number_to_show_is_told_by_one_half_and_held_against_the_other() -> None:
    # Even places have ranks 1 to 4, odd ones 5 to 8; of each half's 20 the ceil(21 x .8) = 17th is 4, or 8.
    ranks = [1 + at // 2 % 4 + 4 * (at % 2) for at in range(40)]
    assert promise(ranks, 0.2) == {"show": [4, 8], "kept": [0.0, 1.0]}
    assert promise([1, None, 1, None], 0.2) == {"show": [None, None], "kept": [None, None]}


def test_a_sample_is_the_same_every_time_and_not_the_first_of_a_sorted_file() -> None:
    drawn = sampled(list(range(1000)))
    assert drawn == sampled(list(range(1000))) and len(drawn) == 400 and max(drawn) > 900
    assert sorted(sampled([3, 1, 2])) == [1, 2, 3]


def test_a_perfect_gate_has_a_floor_that_falls_with_the_number_of_queries() -> None:
    assert floor([0.5] * 20) > floor([0.5] * 2000) > 0.0


def test_the_fit_finds_the_weights_that_made_the_data() -> None:
    draw = random.Random(1)
    data = []
    for _ in range(6000):
        x, y = draw.gauss(2, 1), draw.gauss(0, 3)
        data.append(Sample({"x": x, "y": y}, float(draw.random() < 1 / (1 + exp(-(1.5 * x - 3))))))
    model = fit(data, ["x", "y"])
    assert model.weights["x"] == pytest.approx(1.4, abs=0.2)
    assert model.weights["y"] == pytest.approx(0.0, abs=0.05)


def test_what_was_fitted_for_other_encoders_stays() -> None:
    kept = Gate("before", {"": Logistic(0.0, {}), "old": Logistic(1.0, {})}, {"old": 0.1})
    new = Gate("now", {"": Logistic(2.0, {}), "new": Logistic(3.0, {})}, {"new": 0.2})
    models = {"": Logistic(0.0, {}), "old": Logistic(1.0, {}), "new": Logistic(3.0, {})}
    assert merge_gates(kept, new) == Gate("now", models, {"old": 0.1, "new": 0.2})
