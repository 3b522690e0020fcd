"""A few vectors and many answer alike."""

from __future__ import annotations

import subprocess
import sys

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")
pytest.importorskip("faiss", reason="the encoders' libraries are not installed")

from foretool.retrieval.rankers import vector_index  # noqa: E402
from foretool.retrieval.rankers.vector_index import VectorIndex  # noqa: E402


def test_products_by_hand() -> None:
    index = VectorIndex(np.array([[1.0, 0.0], [0.6, 0.8]], np.float32))
    index.add(np.array([[0.0, 2.0]], np.float32))
    assert len(index) == 3
    found = index.products(np.array([[1.0, 1.0], [0.0, 3.0]], np.float32), np.array([2, 0, 1, 1], np.int64))
    np.testing.assert_allclose(found, [[2.0, 1.0, 1.4, 1.4], [6.0, 0.0, 2.4, 2.4]], rtol=1e-6)
    np.testing.assert_array_equal(
        index.take(np.array([1, 2], np.int64)), np.array([[0.6, 0.8], [0.0, 2.0]], np.float32)
    )


def test_rows_that_came_in_parts_are_those_of_one_array() -> None:
    rows = np.random.default_rng(2).standard_normal((30, 5)).astype(np.float32)
    places = np.array([29, 0, 6, 7, 8, 13, 14, 6], np.int64)
    grown = VectorIndex(rows[:3])
    for start, end in ((3, 3), (3, 7), (7, 8), (8, 29), (29, 30)):
        grown.add(rows[start:end])
    assert len(grown) == 30
    np.testing.assert_allclose(grown.products(rows[:2], places), rows[:2] @ rows[places].T, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(grown.take(places), rows[places])
    taken = grown.take(places[:1])
    taken[:] = 0.0
    np.testing.assert_array_equal(grown.take(places[:1]), rows[29:])  # a copy was changed


def test_faiss_takes_over_and_answers_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(1).standard_normal((90, 8)).astype(np.float32)
    queries, places = rows[:3] * 2, np.arange(89, -1, -1)
    few = VectorIndex(rows)
    monkeypatch.setattr(vector_index, "MANY", 50)
    grown = VectorIndex(rows[:49])
    grown.add(rows[49:80])
    grown.add(rows[80:])
    assert len(grown) == len(few) == 90
    np.testing.assert_allclose(grown.products(queries, places), few.products(queries, places), rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(grown.take(places), few.take(places), rtol=1e-3)


def test_few_vectors_load_no_faiss() -> None:
    program = (
        "import sys, numpy as np\n"
        "from foretool.retrieval.rankers import vector_index\n"
        "rows = np.ones((vector_index.MANY - 1, 4), np.float32)\n"
        "index = vector_index.VectorIndex(rows)\n"
        "index.products(rows[:1], np.arange(9))\n"
        "print('faiss' in sys.modules, end=' ')\n"
        "index.add(rows[:1])\n"
        "print('faiss' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]
