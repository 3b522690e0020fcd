"""How probable it is that a task needs a ranked tool."""

from __future__ import annotations

from math import exp, log
from operator import mul

from foretool.retrieval.chances import chance_features, gains
from foretool.retrieval.ranking import Ranked
from foretool.storage.records import ToolId

A, B, C, D = (ToolId(f"s__{name}") for name in "abcd")
RANKED = (
    Ranked(A, 10.0, {"lexical": 1.5, "tasks": 8.0, "usage": 0.5}),
    Ranked(B, 5.0, {"lexical": 4.0, "history": 1.0}),
    Ranked(C, 1.0, {"lexical": 1.0}),
)


def test_what_is_said_of_a_tool_is_its_place_its_score_and_where_that_comes_from() -> None:
    # The best score is 10, so a fifth of it is 2: 5 points behind are 2.5 of them, 8 points of past tasks are 4.
    assert chance_features(RANKED)[:2] == [
        (0.0, 0.0, log(11.0), 2.0, 4.0, 0.0, 0.0, 1.0),
        (log(2), -2.5, log(11.0), 4.0, 0.0, 1.0, 0.0, 1.0),
    ]
    # A best score under 3 is read as 3.
    assert chance_features([Ranked(A, 0.6, {"tasks": 0.6})]) == [(0.0, 0.0, log(1.6), 0.0, 1.0, 0.0, 0.0, 1.0)]
    assert chance_features(()) == []


def test_without_learned_parts_chances_are_the_same_sums() -> None:
    weights = (-0.7, 0.31, 0.2, -0.11, 3.0, 4.0, 5.0, -1.3)
    plain = [Ranked(A, 7.3, {"lexical": 7.1, "usage": 0.2}), Ranked(B, 7.3), Ranked(C, 0.4), Ranked(D, -2.0)]
    learned = [*plain, Ranked(A, -3.0, {"tasks": 0.5})]
    for ranked in (plain, learned, []):
        sums = [sum(map(mul, weights, each)) for each in chance_features(ranked)]
        assert gains(weights, ranked) == [1.0 / (1.0 + exp(-each)) for each in sums]
