"""The weights of the parts are refitted on episodes that no model has seen."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learning_setting import RAIN, SUM, Setting

from foretool.server.learning.weights import factors_in_use


def test_weights_are_refitted_once_a_model_is_known_and_too_few_new_tasks_are_said(setting: Setting) -> None:
    setting.demonstrate(SUM, RAIN, times=40)
    result = setting.result("weights")
    # The model finds every tool already, so no weights can be better.
    assert (result.outcome, result.report["replayed"]) == ("kept", 16)
    assert result.reason.startswith("not better outside the error: ")
    assert factors_in_use(setting.artifacts) == {}
    again = setting.result("weights")
    assert (again.outcome, again.reason) == ("skipped", "0 tasks that no model has seen; it takes 10")
