"""Words as a short vector."""

from __future__ import annotations

from math import log

import numpy as np

from foretool.retrieval.lsa import Lsa, count_terms


def test_words_and_pairs_of_neighbours_are_count_terms() -> None:
    assert count_terms("Book trains, book") == {"book": 2, "train": 1, "book train": 1, "train book": 1}


def test_a_vector_is_the_weighted_sum_of_its_terms_cut_to_length_1() -> None:
    lsa = Lsa(("book", "train", "book train"), np.asarray([[1, 0], [0, 2], [0, 0]], np.float32))
    # "book" twice counts 1 + log 2, "train" once 1.
    expected = np.asarray([1 + log(2), 2.0])
    assert np.allclose(lsa.vector("book train book"), expected / np.linalg.norm(expected))


def test_a_text_without_a_known_word_is_nothing() -> None:
    lsa = Lsa(("book",), np.ones((1, 2), np.float32))
    assert lsa.vectors(["", "other"]).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert Lsa((), np.zeros((0, 0), np.float32)).vectors(["a"]).shape == (1, 0)
