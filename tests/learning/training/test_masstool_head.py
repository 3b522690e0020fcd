"""The tasks that MassTool is trained on, the classes of golden sets, and the heads that tell these classes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from foretool.learning.rankers.masstool import grams
from foretool.learning.training import masstool_head
from foretool.learning.training.masstool_head import (
    TrainingTasks,
    build_vocabulary,
    choose_bank,
    class_shares,
    familiar_share,
    find_classes,
    fit_head,
    stack_rows,
    take_rows,
)


def test_a_set_seen_once_is_learnt_tool_by_tool() -> None:
    found = find_classes([(0, 1), (0, 1), (2, 3), (2,)])
    assert found.sets == ((0, 1), (2,), (3,))
    assert found.targets == ((0,), (0,), (1, 2), (1,))
    assert found.of(np.asarray([2, 0])).tolist() == [[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]


def test_familiar_tasks_took_what_others_took() -> None:
    golds = [(0, 1), (0,), (1,), (1, 2)]
    assert familiar_share(golds, range(4)) == 0.75
    # The first two are texts of one episode, so only tool 1 was taken by another one.
    assert familiar_share(golds, [0, 0, 1, 2]) == 0.25
    assert familiar_share([(0,), (0,)], [5, 5]) == 0.0, "an episode does not make its own tools familiar"
    assert familiar_share([], []) == 0.0


def test_the_vocabulary_is_what_two_tasks_share() -> None:
    counts = [grams("send mail"), grams("read mail"), grams("a whale")]
    hashes, idf = build_vocabulary(counts)
    assert hashes.tolist() == [next(iter(grams("mail")))]
    assert idf == pytest.approx([np.log(4 / 3) + 1])
    assert build_vocabulary([Counter()])[0].tolist() == []


def test_a_batch_has_only_the_columns_it_uses() -> None:
    words = stack_rows([
        (np.asarray([5, 1]), np.asarray([2.0, 3.0], np.float32)),
        (np.asarray([], np.int64), np.asarray([], np.float32)),
        (np.asarray([5]), np.asarray([7.0], np.float32)),
    ])  # fmt: skip
    used, found = take_rows(words, np.asarray([2, 1, 0]))
    assert used.tolist() == [1, 5]
    assert found.tolist() == [[0.0, 7.0], [0.0, 0.0], [3.0, 2.0]]


def test_the_bank_keeps_the_newest_of_every_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masstool_head, "BANK", 3)
    golds = [(0,), (0,), (1,), (0,), (0,)]
    assert choose_bank(golds, np.arange(5)).tolist() == [2, 3, 4]
    assert choose_bank(golds, np.asarray([0, 2])).tolist() == [0, 2]


def test_a_word_that_goes_with_a_set_makes_its_class_likely() -> None:
    golds = tuple((row % 2,) for row in range(40))
    words = stack_rows([(np.asarray([row % 2], np.int64), np.ones(1, np.float32)) for row in range(40)])
    tasks = TrainingTasks(words, np.zeros((40, 0), np.float32), golds, 2)
    shares: list[float] = []
    head = fit_head(tasks, find_classes(golds), np.arange(40), 7, shares.append)
    found = class_shares([head], tasks, np.asarray([0, 1]))
    assert np.allclose(found.sum(1), 1.0)
    assert found.diagonal().min() > 0.9
    assert shares[-1] == 1.0
