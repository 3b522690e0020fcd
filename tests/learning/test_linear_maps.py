"""The fitted linear maps, by hand: words as a short vector, and where the next text lies."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from foretool.learning.linear_maps import (
    PLACES,
    Lsa,
    NextText,
    Texts,
    call_features,
    count_terms,
    lengths,
    no_next_text,
)
from foretool.retrieval.score_sum import z_scores


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


def test_the_calls_are_read_as_their_mean_text_the_last_one_and_how_many() -> None:
    first, last = np.asarray([1, 0], np.float32), np.asarray([0, 1], np.float32)
    assert call_features([first, last], 2, 2).tolist() == [0.5, 0.5, 0, 1, 0, 0, 1, 0]
    assert call_features([], 0, 2).tolist() == [0, 0, 0, 0, 1, 0, 0, 0]
    # One whose text nobody knows counts; beyond the last place they are alike.
    assert call_features([last], 2, 2).tolist() == [0, 1, 0, 1, 0, 0, 1, 0]
    assert call_features([last], 9, 2).tolist() == [0, 1, 0, 1, 0, 0, 0, 1]


def test_what_is_expected_is_a_sum_over_what_the_calls_say() -> None:
    calls = np.zeros((4 + PLACES, 2), np.float32)
    calls[0], calls[3], calls[5] = [1, 0], [0, 2], [5, 5]
    aim = NextText(np.zeros((3, 2), np.float32), calls, np.zeros(2, np.float32))
    assert (call_features([np.asarray([1, 1], np.float32)], 1, 2) @ aim.calls).tolist() == [6, 7]
    assert aim.dimension == 2


def test_lengths_are_from_the_centre_and_never_nothing() -> None:
    found = lengths(np.asarray([[4, 5], [1, 1]], np.float32), np.asarray([1, 1], np.float32))
    assert found.tolist() == [5.0, np.float32(1e-6)]


def test_over_no_texts_there_is_nothing() -> None:
    aim = no_next_text(7)
    assert (aim.task.shape, aim.calls.shape, aim.dimension) == ((7, 0), (PLACES, 0), 0)


def test_the_nearness_to_what_is_expected_is_the_sum_of_what_each_call_adds() -> None:
    draw = np.random.default_rng(3)
    size, tools = 4, 30
    task, calls, centre = (
        draw.standard_normal(shape).astype(np.float32) for shape in ((6, size), (2 * size + PLACES, size), (size,))
    )
    texts = draw.standard_normal((tools, size)).astype(np.float32)
    aim, said = NextText(task, calls, centre), draw.standard_normal(6).astype(np.float32)
    for called in ([], [4], [4, 9, 4], list(range(25))):
        towards = said @ task + call_features([texts[slot] for slot in called], len(called) + 1, size) @ calls
        whole = (texts - centre) @ towards / lengths(texts, centre)
        found = Texts(texts, aim)
        # The second time everything is remembered.
        for _ in range(2):
            kin, expected = found.after(called, called[-1] if called else None, len(called) + 1, found.towards(said))
            assert expected is not None and np.allclose(expected, z_scores(whole), atol=1e-4)
            assert (kin is None) == (not called)
            if kin is not None:
                assert np.allclose(kin, z_scores(texts @ texts[called[-1]]), atol=1e-5)


def test_without_a_task_or_a_map_only_the_last_text_is_compared() -> None:
    texts = np.eye(3, dtype=np.float32)
    some = NextText(np.ones((3, 3), np.float32), np.ones((6 + PLACES, 3), np.float32), np.zeros(3, np.float32))
    assert Texts(texts, no_next_text(3)).towards(np.ones(3, np.float32)) is None
    for aim in (some, no_next_text(3)):
        kin, expected = Texts(texts, aim).after([1], 1, 1, None)
        assert expected is None
        assert kin is not None and np.allclose(kin, z_scores(texts[1]))


def test_of_more_tools_than_are_remembered_each_is_still_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretool.learning.linear_maps.REMEMBERED", 1)
    monkeypatch.setattr("foretool.learning.linear_maps.LEAST_REMEMBERED", 2)
    texts = np.eye(5, dtype=np.float32)
    found = Texts(texts, no_next_text(5))
    for slot in (0, 1, 2, 3, 4, 0):
        kin, _ = found.after([slot], slot, 1, None)
        assert kin is not None and kin.argmax() == slot
