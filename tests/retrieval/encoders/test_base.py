"""Vectors have length 1."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from foretool.retrieval.encoders.base import unit


def test_a_row_of_zeros_stays() -> None:
    assert unit([[3.0, 4.0], [0.0, 0.0]]).tolist() == [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
