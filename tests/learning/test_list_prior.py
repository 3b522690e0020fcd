"""Lists are filled with what later tasks need."""

from __future__ import annotations

import msgspec
import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learning_setting import RAIN, SUM, Setting
from requirements import requirement

from foretool.learning import list_prior as learning
from foretool.learning.list_prior import call_shares, listed_shares, make_prior
from foretool.server.lists.order import Prior
from foretool.storage.records import ToolId


@requirement("learn:list")
def test_lists_are_filled_by_what_tasks_need_if_that_would_have_shown_more(setting: Setting) -> None:
    # Used as often as `sum` at first, `rain` is all that is needed later, and half as much counts after 200 tasks.
    for number in range(400):
        setting.demonstrate(SUM if number < 200 else RAIN, first=number)
    served = learning.HALF_LIFE
    assert served == 200
    result = setting.result("prior")
    assert result.report["budget"] == setting.budget()
    if result.report["difference"][0] > 0.0:
        assert result.outcome == "promoted"
        need = msgspec.json.decode(setting.artifacts.load_intact("prior")[0][1], type=Prior).need
        assert need[RAIN] > need[SUM]
    else:
        assert result.outcome == "promoted" if result.report["fill"] is False else "kept"


A, B, C, D = (ToolId(f"s__{name}") for name in "abcd")


def test_needs_are_shares_of_calls_and_later_tasks_count_more() -> None:
    # Two tasks, half-life one task: the older one weighs 1/2; A has 1/2 + 1, B has 1/2.
    assert call_shares([(A, B), (A,)], half_life=1.0) == {A: pytest.approx(0.75), B: pytest.approx(0.25)}
    assert call_shares([], 1.0) == {}


def test_coverage_is_a_share_of_each_task() -> None:
    assert listed_shares([A, B], [(A, C), (B,), (), (C, D)]) == [0.5, 1.0, 0.0]


def test_a_prior_is_kept_as_json() -> None:
    prior = make_prior({B: 0.5, A: 0.25, C: 0.0}, 0.5)
    assert prior == Prior({A: 0.25, B: 0.5}, 0.5)
    assert msgspec.json.decode(msgspec.json.encode(prior), type=Prior) == prior
