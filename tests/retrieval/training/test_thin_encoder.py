"""Batches, learning rates, and what is said where an encoder cannot be trained."""

from __future__ import annotations

from itertools import chain

import pytest

from foretool.retrieval.training import TooLittle, thin_encoder
from foretool.retrieval.training.thin_encoder import draw_batches, rate_at


def test_every_example_is_gone_through_once_an_epoch_and_lengths_stay_together() -> None:
    lengths = [at % 7 for at in range(100)]
    order = draw_batches(lengths, 10, 2, 1)
    assert [sorted(chain(*order[:10])), sorted(chain(*order[10:]))] == [list(range(100))] * 2
    assert order == draw_batches(lengths, 10, 2, 1) != draw_batches(lengths, 10, 2, 2)
    assert sum(len({lengths[at] for at in each}) <= 2 for each in order) > 10


def test_the_rate_rises_and_then_falls_to_nothing() -> None:
    rates = [rate_at(step, 100, 1.0) for step in range(100)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[-1] < 0.001


def test_an_encoder_without_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thin_encoder, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(TooLittle, match=r"torch not installed; pip install 'foretool\[train\]'"):
        thin_encoder.trainable_weights()
