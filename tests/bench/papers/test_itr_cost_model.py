"""The cost model of ITR against the paper's tables and cases by hand."""

from __future__ import annotations

import json

import pytest
from requirements import requirement

from bench.papers import itr_cost_model


@requirement("itr:cost-model")
def test_table_1_is_the_papers_row_by_row() -> None:
    rows = list(itr_cost_model.table_1())
    assert [(row["mono"], row["itr"]) for row in rows] == [(row["mono_paper"], row["itr_paper"]) for row in rows]
    assert itr_cost_model.most_loops(40_000) == 480  # (1,000,000 - 40,000) / 2,000
    assert itr_cost_model.most_loops(1_500) == 499  # 499.25


@requirement("itr:cost-model")
def test_table_2_tokens_are_the_papers_but_for_one_that_is_two_per_cent_off() -> None:
    rows = {row["row"]: row for row in itr_cost_model.table_2()}
    # 56 tools of 180 tokens are 10,080; 30,000 - 10,080 = 19,920 instructions; 1,500 - 360 = 1,140 of them with ITR.
    assert itr_cost_model.parts() == (19_920, 10_080, 1_140, 360)
    assert [rows[name]["tokens"] for name in itr_cost_model.TABLE_2] == [30_000, 30_000, 11_220, 1_500]
    assert rows["ITR against B0"]["tokens_saved_%"] == 95.0
    assert rows["ITR against B0"]["right_gained_%"] == 32.3


@requirement("itr:cost-model")
def test_equations_5_to_9_by_hand() -> None:
    assert itr_cost_model.correct(11, 0.1) == pytest.approx(0.5)  # 1 / (1 + .1 * 10)
    assert itr_cost_model.correct(2, 0.25, 0.9) == pytest.approx(0.72)  # .9 / 1.25
    assert itr_cost_model.step_tokens(100, 20, 3) == 123
    assert itr_cost_model.episode_tokens(3, 100, 50, [10, 20, 30]) == 510  # 3 * 150 + 60
    assert itr_cost_model.fitted_interference({11: 0.5}) == pytest.approx(0.1, abs=1e-6)
    (cumulative,) = (row for row in itr_cost_model.equations() if row["table"] == "5.6")
    assert (cumulative["mono"], cumulative["itr"]) == (390_000, 105_000)


def test_the_tables_are_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    itr_cost_model.main(["--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["table"] for row in rows] == [1] * 5 + [2] * 5 + [5] * 3 + ["5.6"] + ["5.1"] * 3
