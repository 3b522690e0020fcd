"""An encoder taken from its ONNX file into torch, and what was learned taken back."""

from __future__ import annotations

import numpy as np
import pytest

from foretool.retrieval.adapters import Adapter
from foretool.retrieval.training import low_rank

NARROW, WIDE = np.zeros((4, 4), np.float32), np.zeros((4, 8), np.float32)


def numbers() -> dict[str, low_rank.Floats]:
    """A model of one layer, as its exporter names its matrices."""
    shapes = {"val_9": NARROW, "val_10": NARROW, "val_11": NARROW, "val_20": NARROW, "val_21": WIDE, "val_22": WIDE.T}
    modules = dict(zip(low_rank.LAYER, shapes.values(), strict=True))
    return {**shapes, **{f"inner.encoder.layer.0.{name}.bias": rows[0] for name, rows in modules.items()}}


def test_matrices_are_known_by_the_order_of_their_numbers() -> None:
    found = low_rank.match_matrices(numbers())
    assert list(found.values()) == ["val_9", "val_10", "val_11", "val_20", "val_21", "val_22"]
    assert found["encoder.layer.0.intermediate.dense"] == "val_21"


def test_another_kind_of_model_is_refused() -> None:
    for changed in (
        {},
        {**numbers(), "val_12": WIDE},
        {name: rows for name, rows in numbers().items() if name != "val_22"},
    ):
        with pytest.raises(low_rank.NotTrainable, match="not the BERT that is known here"):
            low_rank.match_matrices(changed)


def test_an_adapter_of_another_rank_is_not_gone_on_from() -> None:
    torch = pytest.importorskip("torch")
    part = low_rank._wrap(torch.nn.Linear(4, 4), 2, torch.Generator().manual_seed(1))
    trained = Adapter("", {"val_9": (np.zeros((4, 3), np.float32), np.zeros((3, 4), np.float32))})
    with pytest.raises(low_rank.NotTrainable, match="was trained"):
        low_rank.load_adapter({"query": part}, {"query": "val_9"}, trained)
