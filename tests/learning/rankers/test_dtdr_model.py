"""The parts of DTDR's model; what does not fit together is refused in `test_dtdr.py`."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from foretool.learning.rankers.dtdr_model import UNKNOWN, history_rows, read_model, rows_of
from foretool.retrieval.model_format import ModelError


def test_a_history_adds_up_its_counts_the_last_three_and_how_many_there_are() -> None:
    # 3 classes: counts 0-2, last 3-5, one before 6-8, two before 9-11, absent 12-14, number of calls 15-22.
    assert history_rows([], 3) == [12, 13, 14, 15]
    assert history_rows([2, 0], 3) == [2, 0, 3 + 0, 6 + 2, 14, 17]
    assert history_rows([1, 1, 2, 0], 3) == [1, 1, 2, 0, 3 + 0, 6 + 2, 9 + 1, 19]
    assert rows_of(3) == 23
    # A tool that nobody knows: it counts, and its place is as if it were absent.
    assert history_rows([0, UNKNOWN], 3) == [0, 12, 6 + 0, 14, 17]


def test_other_bytes_are_refused() -> None:
    with pytest.raises(ModelError, match="not a model"):
        read_model(b"anything")
