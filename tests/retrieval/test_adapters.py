"""Small changes to a known model's matrices: as bytes, and put into the model."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_model import lookup_model, small_model

from foretool.retrieval import adapters
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.encoders.onnx import open_session
from foretool.retrieval.model_format import ModelError, pack

ROWS, COLUMNS = 64, 8
TABLE = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
LEFT = np.random.default_rng(4).standard_normal((ROWS, 2)).astype(np.float32)
SMALL = np.random.default_rng(6).integers(-127, 127, (ROWS, COLUMNS), np.int8)
SCALE = np.random.default_rng(7).random((ROWS, 1), np.float32)
RIGHT = np.random.default_rng(5).standard_normal((2, COLUMNS)).astype(np.float32)


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


MODELS = {"of floats": lookup_model(TABLE), "of small integers": small_model(SMALL, SCALE)}
TABLES = {"of floats": TABLE, "of small integers": SMALL * SCALE}


@pytest.mark.parametrize("kind", MODELS)
def test_the_matrices_of_a_model_are_read_under_their_names(kind: str) -> None:
    (found,) = adapters.matrices(MODELS[kind]).items()
    assert found[0] == "table"
    np.testing.assert_array_equal(found[1], TABLES[kind])


@pytest.mark.parametrize("kind", MODELS)
def test_changes_are_added_to_the_matrix(kind: str) -> None:
    made = adapters.apply_adapter(Adapter("", {"table": (LEFT, RIGHT)}), MODELS[kind])
    np.testing.assert_allclose(adapters.matrices(made)["table"], TABLES[kind] + LEFT @ RIGHT, atol=1e-6)
    np.testing.assert_allclose(states(made), (TABLES[kind] + LEFT @ RIGHT)[[3, 5]], atol=1e-6)


def test_a_table_that_is_not_changed_stays_small_and_its_rows_are_looked_up_first() -> None:
    whole = MODELS["of small integers"]
    made = adapters.apply_adapter(Adapter("", {}), whole)
    assert len(made) < len(whole) + 300 and "table" not in adapters.matrices(made), "its float32 form is nowhere"
    np.testing.assert_array_equal(states(made), (SMALL * SCALE)[[3, 5]])


@pytest.mark.parametrize("changes", [{"table": (LEFT[:3], RIGHT)}, {"other": (LEFT, RIGHT)}])
def test_changes_that_do_not_fit_are_refused(changes: dict[str, tuple[adapters.Floats, adapters.Floats]]) -> None:
    with pytest.raises(ModelError, match="the model has"):
        adapters.apply_adapter(Adapter("", {"table": (LEFT, RIGHT), **changes}), MODELS["of floats"])


def states(model: bytes) -> adapters.Floats:
    """What the model says of tokens 3 and 5."""
    found: adapters.Floats = open_session(model).run(None, {"input_ids": np.array([[3, 5]])})[0][0]
    return found
