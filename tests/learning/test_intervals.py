"""Intervals of means and of mean differences."""

from __future__ import annotations

import subprocess
import sys

import pytest

from foretool.learning.results import interval, paired_difference


def test_intervals_hold_the_mean_and_shrink_with_more_values() -> None:
    few, many = interval([0.0, 1.0] * 10), interval([0.0, 1.0] * 1000)
    assert few[0] < many[0] < 0.5 < many[1] < few[1]
    assert interval([0.3] * 5) == pytest.approx((0.3, 0.3))
    assert paired_difference([1.0, 0.0], [1.0, 0.0]) == (0.0, 0.0, 0.0)


def test_what_fills_lists_is_learned_without_numpy() -> None:
    code = "import sys; import foretool.learning.run; raise SystemExit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
