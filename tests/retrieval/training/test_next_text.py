"""Fitting where the next text lies."""

from __future__ import annotations

import numpy as np
import pytest

from foretool.retrieval.linear_maps import PLACES, features
from foretool.retrieval.model_format import Floats
from foretool.retrieval.training import next_text as training
from foretool.retrieval.training.demonstrations import Demonstration, dependencies
from foretool.retrieval.training.next_text import fit_next_text

TEXTS = dict(enumerate(np.asarray([[1, 0], [0, 1], [-1, 0]], np.float32)))


def demonstration(*calls: int) -> Demonstration:
    return Demonstration(calls, dependencies(len(calls), None), "a task")


def past() -> tuple[list[Demonstration], Floats]:
    """One kind of task calls 0, then 1; the other 1, then 2. One that nobody told teaches nothing."""
    demonstrations = [demonstration(0, 1), demonstration(1, 2)] * 200 + [demonstration(2, 0)]
    tasks = np.concatenate([np.tile(np.eye(2, dtype=np.float32), (200, 1)), np.zeros((1, 2), np.float32)])
    return demonstrations, tasks


@pytest.mark.parametrize("chunk", [4_096, 7])
def test_a_text_is_expected_for_each_step_of_each_task(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "CHUNK", chunk)
    aim = fit_next_text(*past(), TEXTS, 3)
    assert np.allclose(aim.centre, [0, 1 / 3])
    for task, called, wanted in (([1, 0], [], 0), ([1, 0], [0], 1), ([0, 1], [], 1), ([0, 1], [1], 2)):
        given = features([TEXTS[call] for call in called], len(called), 2)
        found = np.asarray(task, np.float32) @ aim.task + given @ aim.calls + aim.centre
        assert np.abs(found - TEXTS[wanted]).max() < 0.1


def test_it_is_the_ridge_regression() -> None:
    demonstrations, tasks = [demonstration(1)], np.asarray([[2.0]], np.float32)
    aim = fit_next_text(demonstrations, tasks, {0: np.asarray([1.0], np.float32), 1: np.asarray([4.0], np.float32)}, 2)
    # One step: x = (2, 0, 0, 1, 0, 0, 0), y = 4 - 2.5; the ridge's answer is x y / (x x + 5).
    assert np.allclose(aim.task, [[2 * 1.5 / 10]])
    assert np.allclose(aim.calls[:, 0], [0, 0, 1.5 / 10, *[0] * (PLACES - 1)])


def test_without_texts_or_tasks_nothing_is_expected() -> None:
    demonstrations, tasks = past()
    assert fit_next_text(demonstrations, tasks, {}, 3).dimension == 0
    assert fit_next_text(demonstrations, np.zeros((len(tasks), 0), np.float32), TEXTS, 3).dimension == 0
    assert not fit_next_text(demonstrations, np.zeros_like(tasks), TEXTS, 3).task.any()
