"""An encoder taken from its ONNX file into torch, and what was learned taken back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretool.retrieval import encoders
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.encoders.weights import in_folder
from foretool.retrieval.training import low_rank

NARROW, WIDE = np.zeros((4, 4), np.float32), np.zeros((4, 8), np.float32)


def numbers() -> dict[str, low_rank.Floats]:
    """A model of one layer, as its exporter names its matrices."""
    shapes = {"val_9": NARROW, "val_10": NARROW, "val_11": NARROW, "val_20": NARROW, "val_21": WIDE, "val_22": WIDE.T}
    modules = dict(zip(low_rank.LAYER, shapes.values(), strict=True))
    return {**shapes, **{f"inner.encoder.layer.0.{name}.bias": rows[0] for name, rows in modules.items()}}


def test_matrices_are_known_by_the_order_of_their_numbers() -> None:
    found = low_rank.wide(numbers())
    assert list(found.values()) == ["val_9", "val_10", "val_11", "val_20", "val_21", "val_22"]
    assert found["encoder.layer.0.intermediate.dense"] == "val_21"


def test_another_kind_of_model_is_refused() -> None:
    for changed in (
        {},
        {**numbers(), "val_12": WIDE},
        {name: rows for name, rows in numbers().items() if name != "val_22"},
    ):
        with pytest.raises(low_rank.NotTrainable, match="not the BERT that is known here"):
            low_rank.wide(changed)


def test_an_adapter_of_another_rank_is_not_gone_on_from() -> None:
    torch = pytest.importorskip("torch")
    part = low_rank._thin(torch.nn.Linear(4, 4), 2, torch.Generator().manual_seed(1))
    trained = Adapter("", {"val_9": (np.zeros((4, 3), np.float32), np.zeros((3, 4), np.float32))})
    with pytest.raises(low_rank.NotTrainable, match="was trained"):
        low_rank.load({"query": part}, {"query": "val_9"}, trained)


def test_a_whole_model_is_exported_as_a_folder_that_serves(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("onnx", reason="torch writes ONNX with it")
    weights = encoders.MANIFEST[0]
    if encoders.locate(weights) is None:
        pytest.skip(f"{weights.package} is not installed")
    model, _ = low_rank.opened(weights, tmp_path / "laid out")
    thin = low_rank.make_thin(model.eval(), 2, 1)
    for part in thin.values():
        torch.nn.init.normal_(part.right, std=0.02)
    texts = ["roll the dice", "which way to the sea, and how far is it?"]
    trained = model.encode(texts)
    low_rank.merge(thin)
    np.testing.assert_allclose(model.encode(texts), trained, atol=1e-5)
    folder = low_rank.export_whole(low_rank.without_thin(model), tmp_path / "exported")
    served = encoders.open_encoder(in_folder(folder))
    np.testing.assert_allclose(served.queries(texts), trained, atol=1e-4)
