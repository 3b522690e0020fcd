"""Small changes to a known model's matrices: as bytes, and put into the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_model import lookup_model

from foretool.retrieval import adapters
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.encoders.onnx import optimise
from foretool.retrieval.model_format import ModelError, pack

ROWS, COLUMNS = 64, 8
TABLE = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
LEFT = np.random.default_rng(4).standard_normal((ROWS, 2)).astype(np.float32)
RIGHT = np.random.default_rng(5).standard_normal((2, COLUMNS)).astype(np.float32)


def taken_apart(folder: Path) -> Path:
    (folder / "whole.onnx").write_bytes(lookup_model(TABLE))
    return optimise(folder / "whole.onnx", folder, "ENABLE_BASIC")


def test_an_adapter_comes_back_from_its_bytes_in_half_precision() -> None:
    adapter = Adapter("abc", {"val_1": (LEFT, RIGHT)}, {"seed": 7})
    back = adapters.loads(adapter.dumps())
    left, right = back.changes["val_1"]
    assert (back.base, back.report, set(back.changes)) == ("abc", {"seed": 7}, {"val_1"})
    np.testing.assert_array_equal(left, LEFT.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(right, RIGHT.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (b"nothing", "not a model"),
        (pack("dtdr", 1, {}, {}), "found version 1 of dtdr"),
        (pack("ports", 1, {"base": "abc"}, {"val_1|left": LEFT.astype(np.float16)}), "pairs of matrices"),
        (pack("ports", 1, {}, {}), "expected the base"),
        (
            pack("ports", 1, {"base": "a"}, {"v|left": LEFT.astype(np.float16), "v|right": LEFT.astype(np.float16)}),
            "not a pair of thin matrices",
        ),
    ],
)
def test_bytes_that_are_no_adapter_are_refused(model: bytes, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        adapters.loads(model)


def test_an_adapter_fits_the_weights_it_was_trained_on_and_no_others() -> None:
    adapter = Adapter("abc", {})
    adapters.check_base(adapter, "abc")
    with pytest.raises(ModelError, match="the encoder has def"):
        adapters.check_base(adapter, "def")


def test_a_model_that_is_taken_apart_keeps_its_matrices_under_their_names(tmp_path: Path) -> None:
    model = taken_apart(tmp_path)
    assert {name: rows.shape for name, rows in adapters.matrices(model).items()} == {"table": (ROWS, COLUMNS)}
    np.testing.assert_array_equal(adapters.matrices(model)["table"], TABLE)


def test_changes_are_added_to_the_matrix(tmp_path: Path) -> None:
    model = taken_apart(tmp_path)
    adapters.apply_adapter(Adapter("", {"table": (LEFT, RIGHT)}), model)
    np.testing.assert_allclose(adapters.matrices(model)["table"], TABLE + LEFT @ RIGHT, rtol=1e-6)


@pytest.mark.parametrize("changes", [{"table": (LEFT[:3], RIGHT)}, {"other": (LEFT, RIGHT)}])
def test_changes_that_do_not_fit_leave_the_model_as_it_was(
    tmp_path: Path, changes: dict[str, tuple[adapters.Floats, adapters.Floats]]
) -> None:
    model = taken_apart(tmp_path)
    with pytest.raises(ModelError, match="the model has"):
        adapters.apply_adapter(Adapter("", {"table": (LEFT, RIGHT), **changes}), model)
    np.testing.assert_array_equal(adapters.matrices(model)["table"], TABLE)
