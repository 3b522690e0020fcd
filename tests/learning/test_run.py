"""A run learns everything once, alone over its store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learning_setting import SUM, Setting
from requirements import requirement
from tiny_model import HashEncoder

from foretool.learning import encoded_texts
from foretool.learning.encoded_texts import EncodedTexts
from foretool.retrieval import methods
from foretool.retrieval.encoders import Weights
from foretool.retrieval.methods import TrainedMethod
from foretool.storage.records import Episode


@requirement("learn:minimum")
def test_too_few_tasks_are_said(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    setting.demonstrate(SUM, times=3)
    run = setting.learn()
    assert [(each.kind, each.outcome, each.reason) for each in run.results] == [
        ("whole", "skipped", "no client has 20 conversations whose list hid tools"),
        ("dtdr", "skipped", "tasks to learn from: 3 of the 4 that it takes"),
    ]
    gone = TrainedMethod("learned_fakes:Counted", "nowhere_to_be_found:METHOD", "history")
    monkeypatch.setattr(methods, "METHODS", {"dtdr": gone})
    said = {each.kind: each.reason for each in setting.learn().results}
    assert said["dtdr"] == "nowhere_to_be_found is missing; pip install 'foretool[models]'"


def test_a_run_learns_from_the_tasks_whose_words_it_could_embed_and_the_next_from_all(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0

    class Slow(HashEncoder):
        """Takes a second of processor time for each text."""

        def queries(self, texts: Sequence[str]) -> Any:
            nonlocal clock
            clock += len(texts)
            return super().queries(texts)

    weights = [Weights("slow", "slow", "MIT", kind="sentence-transformers")]
    monkeypatch.setattr(EncodedTexts, "open", lambda settings, store: EncodedTexts(weights, [Slow("slow")], store))
    monkeypatch.setattr(encoded_texts.time, "process_time", lambda: clock)
    monkeypatch.setattr(encoded_texts, "EMBEDDED_AT_ONCE", 16)
    tasks = [Episode((SUM,), (f"number {at}",), source="import", key=str(at)) for at in range(30)]
    setting.artifacts.add_demonstrations(tasks)
    first = setting.learn()
    # Sixteen tasks at once: after the first time the 15 s are over.
    assert (first.episodes, first.waiting) == (16, 14)
    assert setting.store.artifacts.history("run")[0].report["waiting"] == 14
    second = setting.learn(now=2e6)
    assert (second.episodes, second.waiting) == (30, 0)
    assert setting.learn(now=3e6).waiting == 0 and clock == 30.0
