"""Demonstrations: what may come next in any order that the dependencies allow, tasks as vectors, and the catalog."""

from __future__ import annotations

import random

import numpy as np

from foretool.learning.training.demonstrations import (
    LONGEST,
    Demonstration,
    PredictionStep,
    ToolVectors,
    demonstrations,
    dependencies,
    task_vectors,
)
from foretool.storage.records import Episode, ToolId

END = 9


def fork(*, ended: bool = True) -> Demonstration:
    """Call 4 first, then 5 and 6 in any order, and 7 after 6."""
    return Demonstration((4, 5, 6, 7), dependencies(4, [(0, 1), (0, 2), (2, 3)]), ended=ended)


def test_a_call_is_acceptable_once_what_it_depends_on_is_done() -> None:
    assert list(fork().steps(END)) == [
        PredictionStep((), (4,)),
        PredictionStep((4,), (5, 6)),
        PredictionStep((4, 5), (6,)),
        PredictionStep((4, 5, 6), (7,)),
        PredictionStep((4, 5, 6, 7), (END,)),
    ]


def test_another_order_has_other_steps() -> None:
    assert list(fork().steps(END, [0, 2, 1, 3]))[2] == PredictionStep((4, 6), (5, 7))


def test_a_task_whose_end_nobody_saw_has_no_end_step() -> None:
    assert [step.acceptable for step in fork(ended=False).steps(END)] == [(4,), (5, 6), (6,), (7,)]


def test_where_only_the_order_is_known_each_call_waits_for_the_one_before() -> None:
    assert dependencies(3, None) == ((), (0,), (1,))
    assert dependencies(3, ()) == ((), (), ())


def test_an_edge_that_points_back_or_outside_is_left_out() -> None:
    assert dependencies(2, [(1, 0), (0, 0), (0, 5), (0, 1)]) == ((), (0,))


def test_a_tool_that_is_called_twice_is_acceptable_until_both_are_done() -> None:
    twice = Demonstration((4, 4), dependencies(2, ()))
    assert [step.acceptable for step in twice.steps(END)] == [(4,), (4,), (END,)]


def test_every_order_that_is_drawn_keeps_the_dependencies_and_all_are_drawn() -> None:
    draw = random.Random(1)
    assert {tuple(fork().shuffled(draw)) for _ in range(200)} == {(0, 1, 2, 3), (0, 2, 1, 3), (0, 2, 3, 1)}


def test_earlier_calls_stand_before_the_first() -> None:
    later = Demonstration((4,), ((),), earlier=(1, 2))
    assert [step.history for step in later.steps(END)] == [(1, 2), (1, 2, 4)]


def test_an_episode_with_an_unknown_tool_is_left_out() -> None:
    first, second = ToolId("a__x"), ToolId("a__y")
    episodes = [Episode((first, second), ("do it", "more")), Episode((ToolId("gone"),))]
    assert demonstrations(episodes, {first: 0, second: 1}) == [Demonstration((0, 1), ((), (0,)), "do it")]


def test_a_long_episode_comes_in_pieces_that_know_what_was_before() -> None:
    call = ToolId("a__x")
    first, second = demonstrations(
        [Episode((call,) * (LONGEST + 2), edges=((0, 1), (LONGEST, LONGEST + 1)))], {call: 3}
    )
    assert (len(first.calls), first.ended, first.earlier, first.after[:2]) == (LONGEST, False, (), ((), (0,)))
    assert (second.calls, second.ended, second.after) == ((3, 3), True, ((), (0,)))
    assert second.earlier == (3,) * LONGEST


def test_a_catalog_before_some_tools_were_installed_has_the_texts_of_the_others() -> None:
    catalog = ToolVectors([ToolId("a"), ToolId("b"), ToolId("c")], np.eye(3, dtype=np.float32))
    before = catalog.without({ToolId("b")})
    assert before.tools == [ToolId("a"), ToolId("c")]
    texts = before.texts([ToolId("c"), ToolId("b"), ToolId("a")])
    assert {place: text.tolist() for place, text in texts.items()} == {0: [0, 0, 1], 2: [1, 0, 0]}
    assert ToolVectors([ToolId("a")], None).without(()).texts([ToolId("a")]) == {}


def test_an_empty_task_has_no_direction_and_no_encoder_no_dimension() -> None:
    found = task_vectors(["a", "", "a"], lambda texts: np.full((len(texts), 4), 2.0, np.float32))
    assert found.tolist() == [[0.5] * 4, [0.0] * 4, [0.5] * 4]
    assert task_vectors(["a"], None).shape == (1, 0)
    assert task_vectors([""], lambda texts: np.ones((len(texts), 4), np.float32)).shape == (1, 0)
