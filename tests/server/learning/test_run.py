"""A run learns everything once, alone over its store."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learning_setting import SUM, Setting
from requirements import requirement

from foretool.retrieval import methods
from foretool.retrieval.methods import TrainedMethod
from foretool.server.learning import run as learning
from foretool.server.learning.run import Busy


@requirement("learn:minimum")
def test_too_few_tasks_are_said(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    setting.demonstrate(SUM, times=3)
    run = setting.learn()
    assert [(each.kind, each.outcome, each.reason) for each in run.results] == [
        ("prior", "skipped", "3 tasks on record; it takes 10 to tell whether it is better"),
        ("names", "skipped", "3 tasks on record; it takes 10 to tell whether it is better"),
        ("dtdr", "skipped", "3 tasks on record; it takes 4"),
    ]
    gone = TrainedMethod("learned_fakes:Counted", "nowhere_to_be_found:METHOD", "history")
    monkeypatch.setattr(methods, "METHODS", {"dtdr": gone})
    said = {each.kind: each.reason for each in setting.learn().results}
    assert said["dtdr"] == "nowhere_to_be_found is missing; pip install 'foretool[models]'"


def test_two_processes_do_not_learn_at_once(setting: Setting) -> None:
    setting.store.artifacts.take_lease(1000.0, 1000 + learning.LEASE_S)
    with pytest.raises(Busy, match="another process is learning"):
        setting.learn(now=1001.0)
    assert setting.learn(now=1000.0 + learning.LEASE_S + 1).episodes == 0
    assert setting.learn(now=1001.0).episodes == 0  # given back at the end
