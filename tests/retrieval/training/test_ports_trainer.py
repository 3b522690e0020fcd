"""An encoder is trained with the served loss, and a training can be killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ports_training import train_small
from requirements import requirement

from foretool.retrieval.encoders import adapted
from foretool.retrieval.model_format import Floats
from foretool.retrieval.training.ports_trainer import Example, choose_candidates


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
    one, other = (each.embed_texts((), ["roll", "route"])[1] for each in (whole, rest))
    np.testing.assert_allclose(one, other, atol=1e-5)


@requirement("ports:export")
def test_the_exported_encoder_gives_the_vectors_it_was_trained_to(tmp_path: Path) -> None:
    trainer = train_small(tmp_path / "model")
    texts = ["roll the dice", "which road leads to the sea?"]
    untrained: Floats = trainer.embed_texts((), texts)[1]
    trainer.run()
    served = adapted.AdaptedEncoder(trainer.weights, trainer.encoder.adapter({}).dumps(), tmp_path / "cache")
    trained = trainer.embed_texts((), texts)[1]
    np.testing.assert_allclose(served.queries(texts), trained, atol=1e-4)
    assert np.abs(trained - untrained).max() > 1e-2
    np.testing.assert_allclose(served.documents(texts), untrained, atol=1e-4)
