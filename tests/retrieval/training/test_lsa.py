"""The main directions of the words of many texts."""

from __future__ import annotations

import numpy as np

from foretool.retrieval.training.lsa import fit_lsa

TEXTS = ["book a train", "train tickets book", "book tickets", "read mail", "mail read inbox", "inbox mail"] * 3


def test_texts_that_share_words_point_the_same_way_and_others_do_not() -> None:
    lsa = fit_lsa(TEXTS, 2, seed=1)
    trains, tickets, mail = lsa.vectors(["book a train", "tickets", "inbox"])
    assert trains @ tickets > 0.9
    assert abs(trains @ mail) < 0.1


def test_all_directions_keep_the_cosines_of_the_words_themselves() -> None:
    # With as many directions as terms nothing is lost: the vectors are the TF-IDF rows, turned.
    lsa = fit_lsa(TEXTS, 100, seed=1)
    assert lsa.dimension == min(len(lsa.vocabulary), len(TEXTS))
    one, other = lsa.vectors(["book tickets", "book a train"])
    n = len(TEXTS)
    idf = {term: 1 + np.log((1 + n) / (1 + within)) for term, within in (("book", 9), ("rare", 3), ("tickets", 6))}
    # Terms: book, tickets, "book tickets" against book, train, "book train"; only "book" in common.
    first = np.sqrt(idf["book"] ** 2 + idf["tickets"] ** 2 + idf["rare"] ** 2)
    second = np.sqrt(idf["book"] ** 2 + idf["tickets"] ** 2 + idf["rare"] ** 2)
    assert np.isclose(one @ other, idf["book"] ** 2 / (first * second), atol=1e-3)


def test_no_texts_give_no_directions() -> None:
    assert fit_lsa([], 8, seed=1).dimension == 0
    assert fit_lsa(["one", "two"], 8, seed=1).dimension == 0  # no term is in two texts


def test_the_same_seed_gives_the_same_directions() -> None:
    assert np.array_equal(fit_lsa(TEXTS, 2, seed=1).projection, fit_lsa(TEXTS, 2, seed=1).projection)
