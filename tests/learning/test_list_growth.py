"""How lists grow is fitted for the models that serve."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learning_setting import RAIN, SUM, Setting
from requirements import requirement

from foretool.learning.training import list_growth as training
from foretool.retrieval import chances
from foretool.server.catalog import models
from foretool.server.lists import order
from foretool.storage.records import ToolId


@requirement("learn:worth")
def test_growing_is_fitted_for_the_models_that_serve_and_counts_for_them_alone(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "BASE_SHARE", 0.0)
    setting.demonstrate(SUM, RAIN, times=40)
    # Alike in words, none of the tools was ever listed by what was found: nothing may be spent on them.
    result = setting.result("growth")
    assert (result.outcome, result.report["allowed"], result.report["replayed"]) == ("kept", 0.0, 16)
    setting.artifacts.roll_back("dtdr")
    monkeypatch.setattr(training, "allowance", lambda *_: 100.0)
    result = setting.result("growth")
    report = result.report
    assert (result.outcome, result.number) == ("promoted", 2)
    assert report["new"]["hidden"] < report["old"]["hidden"]
    assert report["new"]["tokens"] <= 100.0
    growth = chances.loads(setting.artifacts.load_intact("growth")[0][1])
    assert growth.models == {"dtdr": 2}
    assert models.LearnedLists(setting.store).base() == growth.base
    setting.artifacts.roll_back("dtdr")
    assert models.LearnedLists(setting.store).base() is None


@requirement("learn:worth")
@pytest.mark.parametrize("fills", [True, False])
def test_what_fills_a_first_list_counts_among_the_tokens_that_lists_took_at_first(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, fills: bool
) -> None:
    begun: list[tuple[list[ToolId], int]] = []

    def allowance(unlearned: training.Segment, tokens: object, budget: int, base: int) -> float:
        begun.append((list(unlearned.order), base))
        return 100.0

    monkeypatch.setattr(training, "allowance", allowance)
    setting.demonstrate(SUM, RAIN, times=40)
    if fills:
        setting.config = replace(setting.config, settings=replace(setting.config.settings, list_fill=True))
    setting.result("growth")
    ((order, base),) = begun
    assert ({SUM, RAIN} <= set(order)) == fills == bool(order)
    for_names = int(models.FIRST_NAMED * setting.budget())
    assert base == (setting.budget() - for_names) // 2, "half of what is not for names"
