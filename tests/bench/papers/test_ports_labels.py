"""Small trainings with answers of a language model: what is asked, how a map is trained, and what is compared."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from bench.papers.ports_labels import (
    FORMS,
    Form,
    Room,
    candidates,
    figure,
    mask,
    mean_hits,
    places_of,
    right_first,
    train_map,
)
from bench.papers.ports_set import World
from foretool.learning.training.ports_trainer import Example

TOOLS = np.eye(4, dtype=np.float32)
TOOLS[3] = np.asarray((0.9, 0.1, 0.0, 0.42), np.float32)
TOOLS /= np.linalg.norm(TOOLS, axis=1, keepdims=True)
# Both tasks lie nearer to tool 1 than to their own tools, 0 and 2.
QUERIES = np.asarray([(0.6, 0.8, 0, 0), (0, 0.8, 0.6, 0)], np.float32)
ROOM = Room([Example("a", 0, call="f(x=1)"), Example("b", 2, (1,), "g(y=2)")], QUERIES, TOOLS)
WORLD = World("toy", [], ROOM.examples, ["a", "b"], [0, 2], {})


def test_names_of_arguments_are_masked_by_their_place_and_that_of_the_tool_by_one_word() -> None:
    call = 'book(city="Oslo", nights=2)'
    assert mask(call, "masked") == 'book(arg1="Oslo", arg2=2)'
    assert mask(call, "nameless") == 'call(city="Oslo", nights=2)'
    assert mask("stop()", "masked") == "stop()" and mask(call, "near") == mask(call, "twins") == call


def test_the_model_is_asked_about_near_called_tools_or_the_twins_of_the_right_one() -> None:
    assert candidates(ROOM, 0, "near", [0, 1, 2]) == [0, 1, 2]
    assert candidates(ROOM, 0, "twins", [0, 1, 2])[:2] == [0, 3]
    assert 1 not in candidates(ROOM, 1, "near", [0, 1, 2])  # it is right too


def test_the_share_of_right_calls_that_are_likeliest_by_hand() -> None:
    assert right_first({0: {0: -1.0, 1: -2.0}, 1: {2: -3.0, 0: -1.0}}) == 0.5


def test_every_form_is_tried_with_both_numbers_of_epochs() -> None:
    assert {form.epochs for form in FORMS} == {4, 16} and len(FORMS) == len(set(FORMS))
    assert Form("contrastive", 4).told == {"loss": "contrastive", "epochs": 4}


def test_what_chooses_is_the_mean_over_the_draws_by_hand() -> None:
    assert figure([[1, 1], [1, 0]]) == pytest.approx(0.75)
    assert mean_hits([[1, 2], [2, 2]])[1] == [0.5, 0.0]


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("loss", ["contrastive", "full", "soft"])
def test_a_map_moves_each_task_to_its_tool(loss: str) -> None:
    answers = {"near": {0: {0: -0.1, 1: -3.0, 3: -3.0}, 1: {2: -0.1, 0: -3.0, 3: -3.0}}}
    form = Form(loss, 60, share=1.0, gamma=0.05)  # type: ignore[arg-type]
    change = train_map(ROOM, [0, 1], form, answers, seed=0)  # type: ignore[arg-type]
    still = np.zeros((4, 4), np.float32)
    assert places_of(ROOM, QUERIES, WORLD, still) == [3, 2]
    assert places_of(ROOM, QUERIES, WORLD, change) == [1, 1]
    assert (change == train_map(ROOM, [0, 1], form, answers, seed=0)).all()  # type: ignore[arg-type]
