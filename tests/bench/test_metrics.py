from __future__ import annotations

from math import log2

import pytest

from bench import metrics as e

RANKED = ["x", "a", "y", "b", "c"]
GOLD = (frozenset({"a", "a2"}), frozenset({"b"}))


def test_metrics_by_hand() -> None:
    assert [e.recall(RANKED, GOLD, k) for k in (1, 2, 4)] == [0.0, 0.5, 1.0]
    assert [e.hit(RANKED, GOLD, k) for k in (1, 2)] == [0.0, 1.0]
    assert [e.completeness(RANKED, GOLD, k) for k in (2, 4)] == [0.0, 1.0]
    assert e.reciprocal_rank(RANKED, GOLD) == 0.5
    assert e.reciprocal_rank(["x"], GOLD) == 0.0
    assert e.ndcg(RANKED, GOLD, 5) == pytest.approx((1 / log2(3) + 1 / log2(5)) / (1 + 1 / log2(3)))


def test_a_need_that_two_tools_meet_pays_once() -> None:
    assert e.ndcg(["a", "a2"], GOLD, 2) == pytest.approx(1 / (1 + 1 / log2(3)))
    assert e.recall(["a", "a2"], GOLD, 2) == 0.5


def test_a_perfect_ranking_scores_one() -> None:
    assert e.ndcg(["b", "a"], GOLD, 10) == 1.0


def test_more_needs_than_places_leave_some_unmet() -> None:
    seven = [frozenset({f"tool{at}"}) for at in range(7)]
    assert [e.possible_recall(seven, k) for k in (1, 5, 10)] == pytest.approx([1 / 7, 5 / 7, 1.0])
    assert e.possible_recall([frozenset("ab"), frozenset("bc"), frozenset("d")], 1) == pytest.approx(2 / 3), (
        "b meets two"
    )
    assert e.possible_recall([frozenset("a"), frozenset[str]()], 10) == 0.5, "no tool meets the other need"


def test_quantiles() -> None:
    assert [e.quantile([3, 1, 2], share) for share in (0.0, 0.5, 1.0)] == [1, 2, 3]
    assert e.quantile([1.0], 0.99) == 1.0
