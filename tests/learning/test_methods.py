"""A method is judged on later tasks, and promoted only if it is better outside the error."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learning_setting import ADD, METHOD_BYTES, MOON, RAIN, SUB, SUM, TEXT, Setting, Watching, change_rain, use
from requirements import requirement

from foretool.learning import run as learning
from foretool.learning.methods import MethodJudgement, MethodPromotion
from foretool.learning.training.replay import Comparison
from foretool.storage.records import Call


@requirement("learn:promotion")
def test_what_ranks_later_tasks_better_is_promoted_with_its_figures(setting: Setting) -> None:
    setting.demonstrate(SUM, RAIN, times=40)
    run = setting.learn()
    assert setting.outcomes(run)["dtdr"] == "promoted"
    served = setting.artifacts.active("dtdr")
    assert served is not None
    report = served.report
    assert (report["episodes"], report["imported"], report["replayed"], report["steps"]) == (40, 40, 16, 32)
    # Alike in words and used alike, `sky__rain` and `calc__sum` stand below `calc__add`: rank 2 or more each.
    assert report["new"]["mrr"] > report["old"]["mrr"]
    assert report["difference"][0] > 0.0
    assert setting.artifacts.version == 1
    assert setting.artifacts.history("run")[0].report["episodes"] == 40


@requirement("learn:promotion")
def test_what_is_not_better_is_not_served_and_its_report_is_kept(setting: Setting) -> None:
    # Whatever came first in the part that is trained on comes never again.
    setting.demonstrate(ADD, times=30)
    setting.demonstrate(SUB, times=20, first=100)
    run = setting.learn()
    assert setting.outcomes(run)["dtdr"] == "kept"
    assert setting.artifacts.active("dtdr") is None
    made = setting.artifacts.history("dtdr")[0]
    assert (made.size, made.promoted_at) == (0, 0.0)
    assert made.report["difference"][0] <= 0.0


@requirement("learn:promotion")
def test_a_model_is_left_alone_until_enough_tasks_are_new_to_it(setting: Setting) -> None:
    setting.demonstrate(SUM, RAIN, times=40)
    setting.learn()
    again = setting.learn()
    result = setting.result("dtdr", again)
    assert (result.outcome, result.reason) == (
        "skipped", "tasks since dtdr 1: 0 of the 10 that it takes to tell whether it is better",
    )  # fmt: skip
    calls = [Call("s", at, SUM, "calc", "name", False, "ok", 1.0, True, "") for at in range(1, 60_000, 4000)]
    setting.store.calls.record(calls)
    later = setting.learn()
    result = setting.result("dtdr", later)
    assert (result.outcome, result.report["replayed"], result.report["episodes"]) == ("kept", 10, 55)
    assert setting.artifacts.active("dtdr") is not None


@requirement("learn:promotion")
def test_a_model_of_other_encoders_is_trained_anew_at_once(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    setting.demonstrate(SUM, RAIN, times=40)
    for encoders, outcome in (("minilm", "promoted"), ("minilm", "skipped"), ("bge-small", "promoted")):
        monkeypatch.setattr(learning, "encoder_names", lambda _texts, names=encoders: names)
        assert setting.outcomes(setting.learn())["dtdr"] == outcome
    served = setting.artifacts.active("dtdr")
    assert served is not None and served.report["encoders"] == "bge-small"


@requirement("learn:promotion")
def test_a_new_habit_replaces_the_model_that_does_not_know_it(setting: Setting) -> None:
    setting.demonstrate(SUM, RAIN, times=40)
    setting.learn()
    setting.store.calls.record(
        [
            Call(f"s{number}", 10_000.0 * number + place, tool, "sky", "name", False, "ok", 1.0, True, "")
            for number in range(1, 41)
            for place, tool in enumerate((RAIN, MOON))
        ]
    )
    run = setting.learn()
    result = setting.result("dtdr", run)
    # Half of the new tasks are trained on, so that the new model knows more than the old one.
    assert (result.outcome, result.report["replayed"]) == ("promoted", 20)
    first, second = setting.artifacts.history("dtdr")
    assert (first.number, first.active, first.previous, second.active) == (2, True, second.id, False)


@requirement("learn:promotion")
def test_what_follows_its_like_need_not_be_better_outside_the_error(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    better = Comparison(20, 40, {"mrr": 0.5, "top5": 0.5}, {"mrr": 0.52, "top5": 0.5}, (-0.01, 0.02, 0.05))
    monkeypatch.setattr(MethodPromotion, "judge", lambda *_: MethodJudgement(better, []))
    setting.demonstrate(SUM, RAIN, times=40)
    assert setting.outcomes(setting.learn())["dtdr"] == "kept"
    setting.artifacts.add("dtdr", METHOD_BYTES, {"imported": 20}, promote=True)
    run = setting.learn()
    assert setting.outcomes(run)["dtdr"] == "promoted"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("/nowhere/model.gguf", "/nowhere/model.gguf is not there; pip install 'foretool[llm]'"),
        ("http://far.example/v1#m", "ALL_PROXY cannot be used: expected http://host:port, "),
        ("http://localhost:port/v1#m", "language model at http://localhost:port/v1: InvalidURL: "),
    ],
)
def test_a_language_model_that_cannot_be_asked_skips_the_method_that_asks_it(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, model: str, said: str
) -> None:
    monkeypatch.setenv("FORETOOL_LLM", model)
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:1080")
    use(monkeypatch, "ASKING")
    setting.demonstrate(SUM, RAIN, times=40)
    result = setting.result("dtdr", setting.learn())
    assert (result.outcome, said in result.reason) == ("skipped", True), result.reason


@requirement("learn:trusted")
def test_a_text_that_changed_never_enters_training(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "WATCHING")
    change_rain(setting)
    setting.demonstrate(SUM, RAIN, times=40)
    setting.learn()
    assert Watching.seen
    for material in Watching.seen:
        texts = {tool.id: json.loads(tool.definition)["description"] for tool in material.tools}
        assert texts == dict.fromkeys((ADD, SUB, SUM, MOON, RAIN), TEXT)
