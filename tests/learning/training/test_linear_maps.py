"""The main directions of the words of many texts, and where the next text lies."""

from __future__ import annotations

import numpy as np
import pytest

from foretool.learning.linear_maps import PLACES, call_features
from foretool.learning.training import linear_maps as training
from foretool.learning.training.demonstrations import Demonstration, dependencies
from foretool.learning.training.linear_maps import fit_lsa, fit_next_text
from foretool.retrieval.model_format import Floats

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


NEXT = dict(enumerate(np.asarray([[1, 0], [0, 1], [-1, 0]], np.float32)))


def demonstration(*calls: int) -> Demonstration:
    return Demonstration(calls, dependencies(len(calls), None), "a task")


def past() -> tuple[list[Demonstration], Floats]:
    """One kind of task calls 0, then 1; the other 1, then 2. One that nobody told teaches nothing."""
    demonstrations = [demonstration(0, 1), demonstration(1, 2)] * 200 + [demonstration(2, 0)]
    tasks = np.concatenate([np.tile(np.eye(2, dtype=np.float32), (200, 1)), np.zeros((1, 2), np.float32)])
    return demonstrations, tasks


@pytest.mark.parametrize("chunk", [4_096, 7])
def test_a_text_is_expected_for_each_step_of_each_task(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "STEPS_AT_ONCE", chunk)
    aim = fit_next_text(*past(), NEXT, 3)
    assert np.allclose(aim.centre, [0, 1 / 3])
    for task, called, wanted in (([1, 0], [], 0), ([1, 0], [0], 1), ([0, 1], [], 1), ([0, 1], [1], 2)):
        given = call_features([NEXT[call] for call in called], len(called), 2)
        found = np.asarray(task, np.float32) @ aim.task + given @ aim.calls + aim.centre
        assert np.abs(found - NEXT[wanted]).max() < 0.1


def test_it_is_the_ridge_regression() -> None:
    demonstrations, tasks = [demonstration(1)], np.asarray([[2.0]], np.float32)
    aim = fit_next_text(demonstrations, tasks, {0: np.asarray([1.0], np.float32), 1: np.asarray([4.0], np.float32)}, 2)
    # One step: x = (2, 0, 0, 1, 0, 0, 0), y = 4 - 2.5; the ridge's answer is x y / (x x + 5).
    assert np.allclose(aim.task, [[2 * 1.5 / 10]])
    assert np.allclose(aim.calls[:, 0], [0, 0, 1.5 / 10, *[0] * (PLACES - 1)])


def test_without_texts_or_tasks_nothing_is_expected() -> None:
    demonstrations, tasks = past()
    assert fit_next_text(demonstrations, tasks, {}, 3).dimension == 0
    assert fit_next_text(demonstrations, np.zeros((len(tasks), 0), np.float32), NEXT, 3).dimension == 0
    assert not fit_next_text(demonstrations, np.zeros_like(tasks), NEXT, 3).task.any()
