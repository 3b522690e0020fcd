"""Tasks are kept back, and say how head and vote are mixed."""

from __future__ import annotations

import numpy as np
import pytest

from foretool.learning.training.masstool_head import TrainingTasks, stack_rows
from foretool.learning.training.masstool_trust import HeldBack, choose_mix, likeness, recall, split_strangers


def tasks(*golds: tuple[int, ...], tools: int = 4) -> TrainingTasks:
    rows = [(np.asarray([row], np.int64), np.ones(1, np.float32)) for row in range(len(golds))]
    return TrainingTasks(stack_rows(rows), np.zeros((len(golds), 0), np.float32), golds, tools)


def test_likeness_is_the_cosine_of_words_and_of_vectors() -> None:
    rows = [
        (np.asarray([0, 1]), np.asarray([0.6, 0.8], np.float32)),
        (np.asarray([1, 3]), np.asarray([0.8, 0.6], np.float32)),
    ]
    vectors = np.asarray([[1.0, 0.0], [0.6, 0.8]], np.float32)
    meaning, words = likeness(
        TrainingTasks(stack_rows(rows), vectors, ((0,), (1,)), 2), np.asarray([0]), np.asarray([0, 1])
    )
    assert meaning == pytest.approx(np.asarray([[1.0, 0.6]]))
    assert words == pytest.approx(np.asarray([[1.0, 0.64]]))


def test_tasks_are_kept_back_together_with_all_that_took_their_tools() -> None:
    many = tasks(*[(place % 4,) for place in range(40)])
    rows, others = split_strangers(many, np.asarray([0]), np.random.default_rng(1))
    assert sorted([*rows.tolist(), *others.tolist()]) == list(range(40))
    hidden = {row % 4 for row in rows.tolist() if row}
    assert len(hidden) == 1
    assert not any(other % 4 in hidden for other in others.tolist())


def test_the_mix_is_what_finds_most() -> None:
    golden = np.eye(12, dtype=np.float32)
    nothing = np.zeros((12, 12), np.float32)
    nothing[:, [0, 1, 2, 3, 4]] = 9.0
    held = HeldBack(golden, golden, nothing, np.zeros((12, 4), np.float32), np.zeros(12, np.bool_), (0.0, 0.0))
    assert choose_mix([held]) == 1.0
    other = HeldBack(golden, nothing, golden, np.zeros((12, 4), np.float32), np.zeros(12, np.bool_), (0.0, 0.0))
    assert choose_mix([other]) == 0.0


def test_recall_counts_the_golden_among_the_first() -> None:
    shares = np.asarray([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], np.float32)
    golden = np.asarray([[1, 0, 1], [1, 0, 0]], np.float32)
    assert recall(shares, golden, 2).tolist() == [0.5, 0.0]
