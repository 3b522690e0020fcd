"""The equations of PORTS by hand, and an encoder that is trained with them; a training can be killed."""

from __future__ import annotations

from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ports_training import train_small
from requirements import requirement

from bench.papers.published.ports import embed_texts
from foretool.learning.training import ports_trainer as ports
from foretool.learning.training.ports_trainer import Example, choose_candidates
from foretool.retrieval.encoders import adapted
from foretool.retrieval.model_format import Floats

COSINES = [[1.0, 0.5], [0.25, 0.25]]
LOGPROBS = [[-1.0, -2.0], [-1.0, -1.0]]
P = exp(1.0) / (1.0 + exp(1.0))
"""Right tool, first row: cosines 1 and .5 over gamma .5 are 2 and 1."""
Q = exp(2.0) / (1.0 + exp(2.0))
"""The same of the log-probabilities: -2 and -4."""
KL = P * log(P / Q) + (1 - P) * log((1 - P) / (1 - Q))  # 0.08261
PREFERENCE = log(1.0 + exp(-2.0))  # odds e and 1/e, so the log of their ratio is 2: 0.12693


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
    assert choose_candidates(cosines, Example("q", 0), None, 3) == [0, 1, 2, 3]
    assert choose_candidates(cosines, Example("q", 0, (1,)), None, 2) == [0, 2, 3]
    assert choose_candidates(cosines, Example("q", 0), (0, 4, 2), 3) == [0, 2, 4]


# With torch and the weights; the default test run has neither.


def test_the_loss_falls(tmp_path: Path) -> None:
    trainer = train_small(tmp_path / "model")
    trainer.run()
    assert np.mean(trainer.losses[-4:]) < np.mean(trainer.losses[:4])


def test_a_killed_training_goes_on_where_it_stood(tmp_path: Path) -> None:
    whole = train_small(tmp_path / "model")
    whole.run()
    half = train_small(tmp_path / "model", tmp_path / "checkpoint")
    half.run(until=5)
    half.save(tmp_path / "checkpoint")
    rest = train_small(tmp_path / "model", tmp_path / "checkpoint")
    assert rest.done == 5
    rest.run()
    assert rest.losses == pytest.approx(whole.losses, rel=1e-5)
    one, other = (embed_texts(each, (), ["roll", "route"])[1] for each in (whole, rest))
    np.testing.assert_allclose(one, other, atol=1e-5)


@requirement("ports:export")
def test_the_exported_encoder_gives_the_vectors_it_was_trained_to(tmp_path: Path) -> None:
    trainer = train_small(tmp_path / "model")
    texts = ["roll the dice", "which road leads to the sea?"]
    untrained: Floats = embed_texts(trainer, (), texts)[1]
    trainer.run()
    served = adapted.AdaptedEncoder(trainer.weights, trainer.encoder.adapter({}).dumps())
    trained = embed_texts(trainer, (), texts)[1]
    np.testing.assert_allclose(served.queries(texts), trained, atol=1e-4)
    assert np.abs(trained - untrained).max() > 1e-2
    np.testing.assert_allclose(served.documents(texts), untrained, atol=1e-4)
