"""A run learns everything once, alone over its store."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learning_setting import SUM, Setting
from requirements import requirement

from foretool.retrieval import methods
from foretool.retrieval.methods import TrainedMethod


@requirement("learn:minimum")
def test_too_few_tasks_are_said(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    setting.demonstrate(SUM, times=3)
    run = setting.learn()
    assert [(each.kind, each.outcome, each.reason) for each in run.results] == [
        ("prior", "skipped", "3 tasks on record; it takes 10 to tell whether it is better"),
        ("names", "skipped", "3 tasks on record; it takes 10 to tell whether it is better"),
        ("whole", "skipped", "no client has 20 conversations whose list hid tools"),
        ("dtdr", "skipped", "3 tasks on record; it takes 4"),
    ]
    gone = TrainedMethod("learned_fakes:Counted", "nowhere_to_be_found:METHOD", "history")
    monkeypatch.setattr(methods, "METHODS", {"dtdr": gone})
    said = {each.kind: each.reason for each in setting.learn().results}
    assert said["dtdr"] == "nowhere_to_be_found is missing; pip install 'foretool[models]'"
