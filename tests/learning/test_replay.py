"""Later tasks are ranked with the models of a run, a comparison is put in words, and weights are refitted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learned_fakes import Counted
from learning_setting import ADD, RAIN, SUM, Setting

from foretool.learning.replay import Replay, describe_gain, describe_no_gain, factors_in_use
from foretool.learning.timeline import Timeline
from foretool.learning.training.replay import Comparison, StepRanks
from foretool.server import offline
from foretool.storage.records import Episode

COMPARED = Comparison(20, 40, {"mrr": 0.5, "top5": 0.5}, {"mrr": 0.52, "top5": 0.6}, (-0.01, 0.02, 0.05))


def test_a_model_moves_the_tools_that_it_expects(setting: Setting) -> None:
    with offline.open_offline(setting.config) as app:
        upstream_of = {tool.id: tool.upstream for tool in app.catalog.tools()}
        timeline = Timeline([], [Episode((ADD,)), Episode((SUM, RAIN), ("a number",))], upstream_of)
        replay = Replay(app.catalog, None, timeline, upstream_of)
        model = Counted({"": {SUM: 1}, SUM: {RAIN: 1}})
        assert replay.ranks({"dtdr": model}, 1, 2) == [StepRanks((1, 1))]
        (without,) = replay.ranks({}, 1, 2)
        assert min(without.ranks) > 1


def test_a_comparison_is_put_in_words() -> None:
    figures = "reciprocal rank 0.500 -> 0.520 (-0.010 to +0.050), in the first five 50.0% -> 60.0%, over 20 later tasks"
    assert describe_gain(COMPARED) == figures
    assert describe_no_gain(COMPARED, "dtdr", None) == f"not better outside the error: {figures}; it is not served"
    fewer = replace(COMPARED, difference=(0.01, 0.02, 0.05), top5=(-0.05, -0.01, 0.03))
    said = "better ranks in the mean, and fewer needed tools among the first five, which answers show: "
    assert describe_no_gain(fewer, "dtdr", None).startswith(said)


def test_weights_are_refitted_once_a_model_is_known_and_too_few_new_tasks_are_said(setting: Setting) -> None:
    setting.demonstrate(SUM, RAIN, times=40)
    result = setting.result("weights")
    # The model finds every tool already, so no weights can be better.
    assert (result.outcome, result.report["replayed"]) == ("kept", 16)
    assert result.reason.startswith("not better outside the error: ")
    assert factors_in_use(setting.artifacts) == {}
    again = setting.result("weights")
    assert (again.outcome, again.reason) == ("skipped", "tasks that no model has seen: 0 of the 10 that it takes")
