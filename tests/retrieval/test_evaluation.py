from __future__ import annotations

import pytest

from foretool.retrieval import evaluation as e


def test_intervals_hold_the_mean_and_shrink_with_more_values() -> None:
    few, many = e.interval([0.0, 1.0] * 10), e.interval([0.0, 1.0] * 1000)
    assert few[0] < many[0] < 0.5 < many[1] < few[1]
    assert e.interval([0.3] * 5) == pytest.approx((0.3, 0.3))
    assert e.paired_difference([1.0, 0.0], [1.0, 0.0]) == (0.0, 0.0, 0.0)
