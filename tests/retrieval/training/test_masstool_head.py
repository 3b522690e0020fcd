"""A head tells the classes of tasks apart by their words."""

from __future__ import annotations

import numpy as np

from foretool.retrieval.training.masstool_head import class_shares, fit_head
from foretool.retrieval.training.masstool_tasks import Tasks, find_classes, stack_rows


def test_a_word_that_goes_with_a_set_makes_its_class_likely() -> None:
    golds = tuple((row % 2,) for row in range(40))
    words = stack_rows([(np.asarray([row % 2], np.int64), np.ones(1, np.float32)) for row in range(40)])
    tasks = Tasks(words, np.zeros((40, 0), np.float32), golds, 2)
    shares: list[float] = []
    head = fit_head(tasks, find_classes(golds), np.arange(40), 7, shares.append)
    found = class_shares([head], tasks, np.asarray([0, 1]))
    assert np.allclose(found.sum(1), 1.0)
    assert found.diagonal().min() > 0.9
    assert shares[-1] == 1.0
