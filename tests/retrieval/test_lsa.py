"""Words as a short vector."""

from __future__ import annotations

from math import log

import numpy as np

from foretool.retrieval.lsa import Latent, counted


def test_words_and_pairs_of_neighbours_are_counted() -> None:
    assert counted("Book trains, book") == {"book": 2, "train": 1, "book train": 1, "train book": 1}


def test_a_vector_is_the_weighted_sum_of_its_terms_cut_to_length_1() -> None:
    latent = Latent(("book", "train", "book train"), np.asarray([[1, 0], [0, 2], [0, 0]], np.float32))
    # "book" twice counts 1 + log 2, "train" once 1.
    expected = np.asarray([1 + log(2), 2.0])
    assert np.allclose(latent.vector("book train book"), expected / np.linalg.norm(expected))


def test_a_text_without_a_known_word_is_nothing() -> None:
    latent = Latent(("book",), np.ones((1, 2), np.float32))
    assert latent.vectors(["", "other"]).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert Latent((), np.zeros((0, 0), np.float32)).vectors(["a"]).shape == (1, 0)
