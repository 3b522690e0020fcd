"""The listwise layer is fitted on steps that its networks have not seen."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from foretool.retrieval.rankers.dtdr_model import PARTS
from foretool.retrieval.training.dtdr_weights import PRIOR, ListwiseStep, choose_new, fit_listwise


def test_the_listwise_layer_finds_the_part_that_is_right() -> None:
    parts = np.zeros((len(PARTS), 3), np.float32)
    parts[PARTS.index("kin")] = [1, 0, -1]
    steps = [ListwiseStep(parts, np.asarray([0.9, 0.1, 0.0], np.float32))] * 50
    weights = dict(zip(PARTS, fit_listwise(steps, [], ridge=0.01), strict=True))
    # The softmax of w, 0, -w has the mean slope 0.9 where (e^w - e^-w) / (e^w + 1 + e^-w) is: w = 2.376.
    assert weights.pop("kin") == pytest.approx(2.376, abs=0.01)
    assert weights == {name: pytest.approx(PRIOR[name]) for name in weights}


def test_what_was_hidden_moves_only_the_weights_of_unseen_tools() -> None:
    parts = np.zeros((len(PARTS), 2), np.float32)
    parts[PARTS.index("unseen")] = [1, 0]
    parts[PARTS.index("network")] = [0, 1]
    hidden = [ListwiseStep(parts, np.asarray([0.5, 0.5], np.float32))] * 50
    weights = dict(zip(PARTS, fit_listwise([], hidden, ridge=0.01), strict=True))
    assert weights["network"] == PRIOR["network"]
    assert weights["unseen"] == pytest.approx(PRIOR["network"], abs=0.05)


def test_every_tenth_tool_in_the_order_of_its_calls_is_new_and_one_at_least() -> None:
    for seed in range(20):
        chosen = sorted(choose_new(range(40), seed))
        assert len(chosen) == 4 and {later - earlier for earlier, later in pairwise(chosen)} == {10}
        assert len(choose_new([3, 1], seed)) == 1
