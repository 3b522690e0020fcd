"""PORTS: its equations on cases computed by hand, and a training that can be killed."""

from __future__ import annotations

from itertools import chain
from math import exp, log
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from requirements import requirement

from foretool.retrieval import encoders
from foretool.retrieval.encoders import adapted
from foretool.retrieval.model_format import Floats
from foretool.retrieval.training import Material, TooLittle, ports
from foretool.retrieval.training.continuation import Kept, Score
from foretool.retrieval.training.ports import Asked, Example, Plan
from foretool.storage.records import Episode, Tool, ToolId

COSINES = [[1.0, 0.5], [0.25, 0.25]]
LOGPROBS = [[-1.0, -2.0], [-1.0, -1.0]]
P = exp(1.0) / (1.0 + exp(1.0))
"""Right tool, first row: cosines 1 and .5 over gamma .5 are 2 and 1."""
Q = exp(2.0) / (1.0 + exp(2.0))
"""The same of the log-probabilities: -2 and -4."""
KL = P * log(P / Q) + (1 - P) * log((1 - P) / (1 - Q))  # 0.08261
PREFERENCE = log(1.0 + exp(-2.0))  # odds e and 1/e, so the log of their ratio is 2: 0.12693

TOOLS = tuple(
    Tool(ToolId(name), "", name, f'{{"name":"{name}","description":"{text}"}}'.encode(), "")
    for name, text in (("dice", "Rolls dice."), ("news", "Reads the news."), ("maps", "Shows the way."))
)


def modules() -> list[Any]:
    try:
        import torch
    except ImportError:
        return [np]
    return [np, torch]


def rows(values: list[list[float]], xp: Any) -> Any:
    return xp.asarray(values, dtype=xp.float64)


@requirement("ports:equations")
@pytest.mark.parametrize("xp", modules(), ids=lambda module: str(module.__name__))
def test_the_equations_give_what_was_computed_by_hand(xp: Any) -> None:
    log_p = ports.log_retrieval(rows(COSINES, xp), 0.5, xp)
    log_q = ports.log_usefulness(rows(LOGPROBS, xp), 0.5, xp)
    assert xp.exp(log_p)[0].tolist() == pytest.approx([0.731059, 0.268941], abs=1e-6)  # eq. 1
    assert xp.exp(log_q)[0].tolist() == pytest.approx([0.880797, 0.119203], abs=1e-6)  # eq. 2
    assert ports.replug(log_p, log_q, xp).tolist() == pytest.approx([KL, 0.0])  # eq. 3
    assert abs(KL - 0.08261) < 1e-5
    assert ports.log_odds(log_p, xp)[0].tolist() == pytest.approx([1.0, -1.0])  # eq. 4
    assert ports.preference(log_p, xp).tolist() == pytest.approx([PREFERENCE, log(2.0)])  # eq. 5
    assert abs(PREFERENCE - 0.12693) < 1e-5


@pytest.mark.parametrize("xp", modules(), ids=lambda module: str(module.__name__))
def test_the_preference_is_summed_over_the_negatives(xp: Any) -> None:
    # Cosines 1, .5, .5 over .5: shares e/(e+2) and 1/(e+2) twice; odds e/2 and 1/(e+1) twice.
    log_p = ports.log_retrieval(rows([[1.0, 0.5, 0.5]], xp), 0.5, xp)
    ratio = log((exp(1.0) / 2) / (1 / (exp(1.0) + 1)))
    assert ports.preference(log_p, xp).tolist() == pytest.approx([2 * log(1 + exp(-ratio))])


@pytest.mark.parametrize("xp", modules(), ids=lambda module: str(module.__name__))
def test_a_share_of_one_has_finite_odds_and_shut_tools_no_share(xp: Any) -> None:
    log_p = ports.log_retrieval(rows([[1.0, -1e4]], xp), 0.5, xp)
    assert ports.preference(log_p, xp).tolist() == pytest.approx([0.0], abs=1e-6)
    assert ports.contrastive(rows([[0.5, 0.5, -1e4]], xp), 0.05, xp).tolist() == pytest.approx([log(2.0)])


def test_negatives_are_the_nearest_that_are_not_right() -> None:
    cosines = np.asarray([0.1, 0.9, 0.8, 0.7, 0.6], np.float32)
    assert ports.candidates(cosines, Example("q", 0), None, 3) == [0, 1, 2, 3]
    assert ports.candidates(cosines, Example("q", 0, (1,)), None, 2) == [0, 2, 3]
    assert ports.candidates(cosines, Example("q", 0), (0, 4, 2), 3) == [0, 2, 4]


def test_a_step_reads_the_right_tools_anew_and_then_the_hardest_others() -> None:
    batch = ports.Batch([0, 1, 2], [[4, 1, 2], [5, 3, 1], [4, 0]])
    assert ports.read_anew(batch, 9) == [0, 1, 2, 3, 4, 5]
    assert ports.read_anew(batch, 4) == [1, 3, 4, 5]
    assert ports.read_anew(batch, 2) == [4, 5]


def test_every_example_is_gone_through_once_an_epoch_and_lengths_stay_together() -> None:
    lengths = [at % 7 for at in range(100)]
    plan = Plan(batch=10, epochs=2, seed=1)
    order = ports.steps(lengths, plan)
    assert [sorted(chain(*order[:10])), sorted(chain(*order[10:]))] == [list(range(100))] * 2
    assert order == ports.steps(lengths, plan) != ports.steps(lengths, Plan(batch=10, epochs=2, seed=2))
    assert sum(len({lengths[at] for at in each}) <= 2 for each in order) > 10


def test_the_rate_rises_and_then_falls_to_nothing() -> None:
    rates = [ports.rate_at(step, 100, 1.0) for step in range(100)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[-1] < 0.001


def test_a_task_of_two_tools_is_two_examples() -> None:
    episodes = (
        Episode((ToolId("news"), ToolId("maps"), ToolId("news")), ("what happens near me",)),
        Episode((ToolId("dice"),)),
        Episode((ToolId("gone"),), ("what was",)),
    )
    assert ports.examples_of(Material(TOOLS, episodes)) == [
        Example("what happens near me", 1, (2,)),
        Example("what happens near me", 2, (1,)),
    ]


def test_tools_that_nobody_called_are_not_trained_with() -> None:
    called, examples = ports.only_called([Example("a", 5), Example("b", 2, (7,))])
    assert called == [2, 5, 7]
    assert examples == [Example("a", 1), Example("b", 0, (2,))]


def test_the_model_is_asked_for_the_right_call_given_the_right_tool_and_the_hardest_others() -> None:
    class Named:
        model = "named"

        def logprob(self, prompt: str, continuation: str) -> Score:
            return Score(-1.0 if f"def{continuation[:-2]}" in prompt else -8.0, 2)

    trainer = cast(
        ports.Trainer,
        SimpleNamespace(
            examples=[Example("old", 2), Example("roll", 0), Example("read", 1)],
            cosines=lambda examples: np.asarray([[0.1, 0.2, 0.3]] * len(examples), np.float32),
        ),
    )
    asked = ports.ask(trainer, TOOLS, Named(), Kept(None), most=2 * (1 + ports.HARD))
    assert asked.scored == {1: (0, 2, 1), 2: (1, 2, 0)}
    assert asked.useful(1, [0, 2]) == [-0.5, -4.0]
    assert asked.useful(0, [2, 1]) is None
    assert asked.pairs == 6


def test_a_tool_is_shown_as_a_function() -> None:
    tool = Tool(
        ToolId("s__roll"), "s", "roll",
        b'{"name":"roll","description":"Rolls\\n dice.","inputSchema":{"properties":{"sides":{},"times":{}}}}', "",
    )  # fmt: skip
    assert ports.docstring(tool) == 'def roll(sides, times):\n"""\nRolls dice.\n"""'


def test_a_training_goes_on_from_the_adapter_that_comes_with_us_where_the_rank_is_the_same() -> None:
    found = ports.shipped(Plan(rank=16))
    assert found is not None
    assert found.base == encoders.MANIFEST[0].sha256
    assert {left.shape[1] for left, _ in found.changes.values()} == {16}
    assert ports.shipped(Plan(rank=4)) is None


def test_training_without_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(TooLittle, match=r"torch not installed; pip install 'foretool\[train\]'"):
        ports.METHOD.train(Material(TOOLS, ()), lambda what, share: None)


# With torch and the weights; the default test run has neither.


def training(folder: Path, checkpoint: Path | None = None, **changes: Any) -> ports.Trainer:
    pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    weights = encoders.MANIFEST[0]
    if encoders.locate(weights) is None:
        pytest.skip(f"{weights.package} is not installed")
    texts = ["dice. Rolls dice.", "news. Reads the news.", "maps. Shows the way.", "mail. Sends a letter."]
    examples = [
        Example(query, at)
        for at, words in enumerate(("roll throw gamble d20", "headlines journal today", "route road", "post write"))
        for query in words.split()
    ]
    plan = Plan(**{"batch": 3, "epochs": 3, "refresh": 4, "half": False, "rank": 4, "rate": 0.01, **changes})
    asked = Asked(
        {(at, each): -1.0 if each == one.tool else -6.0 for at, one in enumerate(examples) for each in range(4)}
    )
    return ports.Trainer(weights, texts, examples, plan, folder, checkpoint, asked.useful)


@pytest.mark.parametrize("loss", ["ports", "replug", "contrastive", "full"])
@pytest.mark.parametrize("sides", ["both", "query"])
def test_every_loss_falls(tmp_path: Path, loss: ports.Loss, sides: str) -> None:
    trainer = training(tmp_path / "model", loss=loss, sides=sides)
    trainer.run()
    assert np.mean(trainer.losses[-4:]) < np.mean(trainer.losses[:4])


def test_a_killed_training_goes_on_where_it_stood(tmp_path: Path) -> None:
    whole = training(tmp_path / "model")
    whole.run()
    half = training(tmp_path / "model", tmp_path / "checkpoint")
    half.run(until=5)
    half.save(tmp_path / "checkpoint")
    rest = training(tmp_path / "model", tmp_path / "checkpoint")
    assert rest.done == 5
    rest.run()
    assert rest.losses == pytest.approx(whole.losses, rel=1e-5)
    one, other = (each.embed_texts((), ["roll", "route"])[1] for each in (whole, rest))
    np.testing.assert_allclose(one, other, atol=1e-5)


@requirement("ports:export")
def test_the_exported_encoder_gives_the_vectors_it_was_trained_to(tmp_path: Path) -> None:
    trainer = training(tmp_path / "model", sides="query")
    texts = ["roll the dice", "which road leads to the sea?"]
    untrained: Floats = trainer.embed_texts((), texts)[1]
    trainer.run()
    served = adapted.opened(trainer.weights, trainer.adapter({}).dumps(), tmp_path / "cache")
    trained = trainer.embed_texts((), texts)[1]
    np.testing.assert_allclose(served.queries(texts), trained, atol=1e-4)
    assert np.abs(trained - untrained).max() > 1e-2
    np.testing.assert_allclose(served.documents(texts), untrained, atol=1e-4)
