"""An encoder taken from its ONNX file into torch; its batches and rates; what is said where it cannot be trained."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from foretool.learning.training import TooLittle, thin_encoder
from foretool.learning.training.thin_encoder import ThinEncoder, draw_batches, rate_at
from foretool.retrieval import encoders
from foretool.retrieval.adapters import Adapter


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


NARROW, WIDE = np.zeros((4, 4), np.float32), np.zeros((4, 8), np.float32)


def numbers() -> dict[str, thin_encoder.Floats]:
    """A model of one layer, as its exporter names its matrices."""
    shapes = {"val_9": NARROW, "val_10": NARROW, "val_11": NARROW, "val_20": NARROW, "val_21": WIDE, "val_22": WIDE.T}
    modules = dict(zip(thin_encoder.LAYER, shapes.values(), strict=True))
    return {**shapes, **{f"inner.encoder.layer.0.{name}.bias": rows[0] for name, rows in modules.items()}}


def test_matrices_are_known_by_the_order_of_their_numbers() -> None:
    found = thin_encoder.match_matrices(numbers())
    assert list(found.values()) == ["val_9", "val_10", "val_11", "val_20", "val_21", "val_22"]
    assert found["encoder.layer.0.intermediate.dense"] == "val_21"


def test_another_kind_of_model_is_refused() -> None:
    for changed in (
        {},
        {**numbers(), "val_12": WIDE},
        {name: rows for name, rows in numbers().items() if name != "val_22"},
    ):
        with pytest.raises(thin_encoder.NotTrainable, match="not the BERT that is known here"):
            thin_encoder.match_matrices(changed)


def test_an_adapter_of_another_rank_is_not_gone_on_from() -> None:
    torch = pytest.importorskip("torch")
    encoder = ThinEncoder.__new__(ThinEncoder)
    encoder._names, encoder._torch = {"query": "val_9"}, torch
    encoder.thin = {"query": SimpleNamespace(left=torch.zeros(4, 2), right=torch.zeros(2, 4))}
    trained = Adapter("", {"val_9": (np.zeros((4, 3), np.float32), np.zeros((3, 4), np.float32))})
    with pytest.raises(thin_encoder.NotTrainable, match="was trained"):
        encoder.continue_from(trained)


def test_attention_is_not_fused_because_its_gradient_is_slow_in_bfloat16(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[dict[str, object]] = []

    class Part:
        def __init__(self, *_: object, **options: object) -> None:
            asked.append(options)

        def get_embedding_dimension(self) -> int:
            return 4

    modules = SimpleNamespace(Transformer=Part, Pooling=Part, Normalize=Part)
    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=Part))
    monkeypatch.setitem(sys.modules, "sentence_transformers.sentence_transformer", SimpleNamespace(modules=modules))
    monkeypatch.setitem(sys.modules, "sentence_transformers.sentence_transformer.modules", modules)
    monkeypatch.setattr(thin_encoder, "write_folder", lambda *_: {"query": "val_9"})
    _, names = thin_encoder.open_student(encoders.MANIFEST[0].untrained, tmp_path)
    assert names == {"query": "val_9"}
    assert asked[0]["model_kwargs"] == {"attn_implementation": "eager"}
