"""Fine-tuning the encoder on past tasks: who gets it, and that what comes of it is read as it was learnt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from requirements import requirement

from foretool.learning.training import Material, TooLittle, masstool_tuned
from foretool.learning.training.masstool import METHOD
from foretool.learning.training.masstool_tuned import LEAST, tune, weights_to_tune
from foretool.retrieval import adapters, encoders
from foretool.retrieval.encoders.adapted import AdaptedEncoder
from foretool.retrieval.model_format import Floats, unpack
from tests.learning.training.test_masstool import embed, episodes

MINILM = encoders.MANIFEST[0].untrained


def test_it_takes_many_tasks_and_what_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masstool_tuned, "trainable_weights", lambda: MINILM)
    assert weights_to_tune(LEAST) is MINILM
    assert weights_to_tune(LEAST - 1) is None

    def lacking() -> encoders.Weights:
        raise TooLittle("torch not installed")

    monkeypatch.setattr(masstool_tuned, "trainable_weights", lacking)
    assert weights_to_tune(LEAST) is None


@pytest.mark.slow
@requirement("masstool:tuned")
def test_the_model_holds_what_was_tuned_on_the_classes_of_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def fake(
        weights: encoders.Weights,
        texts: list[str],
        targets: Callable[[Any], Floats],
        seed: int,
        progress: Callable[[float], None],
    ) -> dict[str, Any]:
        seen.extend([weights, len(texts), targets(np.arange(4)).argmax(1).tolist(), seed])
        return {
            "tuned_adapter": np.frombuffer(b"adapter", np.uint8),
            "tuned_out": np.ones((2, 4), np.float16),
            "tuned_bias": np.zeros(4, np.float32),
        }

    monkeypatch.setattr(masstool_tuned, "weights_to_tune", lambda tasks: MINILM)
    monkeypatch.setattr(masstool_tuned, "tune", fake)
    _, arrays = unpack(METHOD.train(Material((), episodes(24), queries=embed), lambda *_: None), "masstool", 1)
    assert seen[:2] == [MINILM, 32], "tasks that took no tool have no class"
    assert len(set(seen[2])) == 4 and seen[3] == 7
    assert arrays["tuned_adapter"].tobytes() == b"adapter"
    assert (arrays["tuned_out"].shape, arrays["tuned_bias"].shape) == ((2, 4), (4,))
    _, arrays = unpack(METHOD.train(Material((), episodes()), lambda *_: None), "masstool", 1)
    assert "tuned_adapter" not in arrays, "where no encoder serves, none is tuned"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_what_was_learnt_is_what_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    if encoders.locate(MINILM) is None:
        pytest.skip(f"{MINILM.package} is not installed")
    monkeypatch.setattr(masstool_tuned, "EPOCHS", 6)
    monkeypatch.setattr(masstool_tuned, "BATCH", 8)
    texts = [f"book a {what} for {day}" for what in ("train", "room") for day in ("Monday", "May", "noon", "two")]
    classes = np.repeat(np.eye(2, dtype=np.float32), 4, axis=0)
    shares: list[float] = []
    one, other = (tune(MINILM, texts, classes.__getitem__, 3, shares.append) for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)
    adapter = one["tuned_adapter"].tobytes()
    assert shares[-1] == 1.0
    read = AdaptedEncoder(MINILM, adapter, None).queries(["book a room for ten"])
    plain = encoders.open_encoder(MINILM).queries(["book a room for ten"])
    assert (read @ one["tuned_out"] + one["tuned_bias"]).argmax(1).tolist() == [1]
    assert float((read * plain).sum()) < 0.999
    assert adapters.loads(adapter).base == MINILM.sha256
