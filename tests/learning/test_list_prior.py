"""Lists are filled with what later tasks need."""

from __future__ import annotations

import msgspec
import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learning_setting import RAIN, SUM, Setting
from requirements import requirement

from foretool.learning import list_prior as learning
from foretool.retrieval import list_rules


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
        need = msgspec.json.decode(setting.artifacts.load_intact("prior")[0][1], type=list_rules.Prior).need
        assert need[RAIN] > need[SUM]
    else:
        assert result.outcome == "promoted" if result.report["fill"] is False else "kept"
