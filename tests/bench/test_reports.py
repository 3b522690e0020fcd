"""The arithmetic of rows, by hand, and the lines that are printed."""

from __future__ import annotations

import json

import pytest

from bench.reports import area_under_curve, difference, line_of, mean_row, print_row, times_row


def test_auc_by_hand() -> None:
    # Of the 2 x 3 pairs (right, wrong): .9 beats all three, .4 beats .1, equals .4, loses to .5.
    assert area_under_curve([0.9, 0.4], [0.1, 0.4, 0.5]) == pytest.approx((3 + 1 + 0.5) / 6)


def test_a_mean_has_its_interval_and_a_difference_both_ends() -> None:
    assert mean_row("r@1", [1.0, 1.0]) == {"r@1": 1.0, "r@1_interval": [1.0, 1.0]}
    assert difference([1.0, 0.5], [0.5, 0.0]) == [0.5, 0.5, 0.5]
    assert times_row([3.0, 1.0, 2.0], (50,)) == {"p50_ms": 2.0}


def test_a_line_puts_an_interval_behind_its_figure_and_leaves_out_what_is_empty() -> None:
    row = {"set": "s", "method": "m", "n": 2, "r@1": 0.5, "r@1_interval": [0.0, 1.0], "seed": None}
    assert line_of(row, 3) == f"{'s':<18} m   n=2     r@1 0.500 [0.000 1.000]"
    assert line_of({"tools": 3}) == "tools 3"


def test_a_row_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_row({"set": "s", "x": [1]}, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"set": "s", "x": [1]}
