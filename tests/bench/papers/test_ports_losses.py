"""What the comparison of losses counts."""

from __future__ import annotations

import pytest

from bench.papers.ports_losses import differences, drawn, mean, right
from bench.papers.ports_set import World
from foretool.learning.training.ports import ModelAnswers


def test_the_seeds_are_averaged_query_by_query_and_compared_on_the_same_queries() -> None:
    seeds = [{1: [1.0, 0.0], 2: [1.0, 1.0], 3: [1.0, 1.0]}, {1: [0.0, 0.0], 2: [1.0, 0.0], 3: [1.0, 1.0]}]
    found = mean(seeds)
    assert found == {1: [0.5, 0.0], 2: [1.0, 0.5], 3: [1.0, 1.0]}
    worse = {1: [0.25, -0.25], 2: [1.0, 0.0], 3: [1.0, 1.0]}
    assert differences(found, worse) == {"r@1": 0.25, "r@2": 0.25, "r@3": 0.0, "r@1_interval": [0.25, 0.25]}


def test_the_language_model_is_right_where_the_right_tool_is_the_likeliest() -> None:
    asked = ModelAnswers({(0, 4): -1.0, (0, 5): -2.0, (1, 5): -3.0, (1, 4): -2.0}, {0: (4, 5), 1: (5, 4)})
    assert right(asked) == pytest.approx(0.5)


def test_few_queries_are_drawn_alike_each_time() -> None:
    world = World("toy", (), (), [str(at) for at in range(2000)], list(range(2000)), {})
    some = drawn(world)
    assert len(some.queries) == 500
    assert [int(each) for each in some.queries] == list(some.gold)
    assert drawn(world) == some
