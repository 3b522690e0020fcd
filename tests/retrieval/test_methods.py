"""Every trained method can be served and trained under its name."""

from __future__ import annotations

import pytest

from foretool.retrieval.methods import METHODS, import_object


@pytest.mark.parametrize("name", METHODS)
def test_both_halves_of_a_method_carry_its_name(name: str) -> None:
    pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")
    pytest.importorskip("faiss", reason="the encoders' libraries are not installed")
    method = METHODS[name]
    assert import_object(method.served).name == name
    assert method.training == f"foretool.learning.training.{name}:METHOD" and callable(
        import_object(method.training).train
    )


def test_parts_are_told_apart_and_what_is_missing_is_an_import_error() -> None:
    assert len({method.part for method in METHODS.values()}) == len(METHODS)
    with pytest.raises(ImportError):
        import_object("nowhere_to_be_found:Model")
