"""DTDR-C and DTDR-L by hand, from the definitions of section 4.1."""

from __future__ import annotations

import numpy as np
import pytest
from requirements import requirement

from bench.papers.published.dtdr import (
    GLOBAL_SHARE,
    DependencyGraph,
    DtdrC,
    DtdrL,
    fit_c,
    fit_l,
    history_text,
    k_means,
    suffixes,
)
from foretool.learning.training.demonstrations import Demonstration

CORNERS = np.asarray([[0, 0], [0, 9], [9, 0]], np.float32)
POINTS = np.concatenate([CORNERS + np.float32(shift) for shift in (0.0, 0.1, 0.2)])
MAIL, READ, BOOK, END = 0, 1, 2, 3
POST = [[MAIL, READ, END], [MAIL, READ, READ, END], [MAIL, BOOK, END]]
TRIPS = [[BOOK, END], [BOOK, BOOK, MAIL, END]]


def listed(values: object) -> list[float]:
    return [round(float(each), 4) for each in np.asarray(values)]


def test_the_ends_of_a_history_come_longest_first_and_a_whole_one_has_the_start_mark() -> None:
    assert suffixes([]) == [(-1,)]
    assert suffixes([5, 6]) == [(-1, 5, 6), (5, 6), (6,)]
    assert suffixes([5, 6, 7, 8]) == [(6, 7, 8), (7, 8), (8,)]


@requirement("dtdr:published")
def test_the_graph_gives_what_followed_the_history_in_the_demonstrations() -> None:
    graph = DependencyGraph(POST, 3)
    # After the start: MAIL, thrice of thrice. After MAIL: READ twice, BOOK once. After MAIL, READ: READ once, END once.
    assert listed(graph.after([])) == [1.0, 0.0, 0.0, 0.0]
    assert listed(graph.after([MAIL])) == [0.0, 0.6667, 0.3333, 0.0]
    assert listed(graph.after([MAIL, READ])) == [0.0, 0.5, 0.0, 0.5]


def test_a_history_that_never_occurred_is_cut_to_the_longest_end_that_did() -> None:
    graph = DependencyGraph(POST, 3)
    # BOOK, MAIL never occurred together; MAIL alone did, in whole demonstrations and within them alike.
    assert listed(graph.after([BOOK, MAIL])) == [0.0, 0.6667, 0.3333, 0.0]
    assert DependencyGraph([[MAIL, END]], 3).after([READ]) is None


def test_the_prior_is_how_often_each_is_called_at_all() -> None:
    assert listed(DependencyGraph(TRIPS, 3).prior()) == [0.1667, 0.0, 0.5, 0.3333]


@requirement("dtdr:published")
def test_dtdr_c_walks_the_graph_of_the_nearest_cluster() -> None:
    centroids = np.asarray([[1.0, 0.0], [0.0, 1.0]], np.float32)
    graphs = [DependencyGraph(POST, 3), DependencyGraph(TRIPS, 3)]
    model = DtdrC(centroids, graphs, DependencyGraph([*POST, *TRIPS], 3))
    trip = np.asarray([0.2, 0.9], np.float32)
    assert model.cluster(trip) == 1
    # Cluster: BOOK first, twice of twice. All: MAIL three times of five, BOOK twice.
    g = GLOBAL_SHARE
    assert listed(model.after(trip, [])) == [round(g * 0.6, 4), 0.0, round((1 - g) + g * 0.4, 4), 0.0]


@requirement("dtdr:published")
def test_where_the_cluster_never_saw_such_a_history_half_is_its_prior_and_half_the_whole_graph() -> None:
    graphs = [DependencyGraph(TRIPS, 3)]
    model = DtdrC(np.zeros((1, 2), np.float32), graphs, DependencyGraph([*POST, *TRIPS], 3))
    # READ occurs in no trip. Prior of trips (1/6, 0, 3/6, 2/6); after READ anywhere: READ 1 of 3, END 2 of 3.
    here = np.asarray([1 / 12, 1 / 6, 3 / 12, 2 / 12 + 1 / 3])
    anywhere = np.asarray([0, 1 / 3, 0, 2 / 3])
    expected = (1 - GLOBAL_SHARE) * here + GLOBAL_SHARE * anywhere
    assert listed(model.after(np.zeros(2, np.float32), [READ])) == listed(expected)


@requirement("dtdr:published")
def test_dtdr_l_is_a_softmax_over_one_layer_and_alpha_cuts_it() -> None:
    model = DtdrL(np.log(np.asarray([[2, 1, 1], [1, 1, 2]], np.float32)), np.zeros(3, np.float32))
    vector = np.asarray([1, 0], np.float32)
    # Logits log 2, 0, 0: the shares are 2, 1, 1 of 4.
    assert listed(model.after(vector)) == [0.5, 0.25, 0.25]
    assert model.retrieve(vector, 0.3) == [0]
    assert model.retrieve(vector, 0.2) == [0, 1, 2]
    assert model.retrieve(np.asarray([0, 2], np.float32), 0.1) == [2, 0, 1]


@pytest.mark.parametrize(("names", "text"), [((), "pay it"), (("find", "pay"), "pay it find, pay")])
def test_query_and_history_become_one_text(names: tuple[str, ...], text: str) -> None:
    assert history_text("pay it", names) == text


def test_k_means_finds_three_heaps_and_their_means() -> None:
    centroids, member = k_means(POINTS, 3, np.random.default_rng(1))
    assert len({tuple(member[start::3].tolist()) for start in range(3)}) == 3
    assert np.allclose(sorted(centroids.tolist()), sorted((CORNERS + np.float32(0.1)).tolist()), atol=1e-5)


def test_k_means_takes_points_that_are_all_alike() -> None:
    centroids, member = k_means(np.ones((4, 2), np.float32), 2, np.random.default_rng(1))
    assert np.array_equal(centroids, np.ones((2, 2))) and set(member.tolist()) <= {0, 1}


def test_there_is_one_cluster_for_ten_demonstrations() -> None:
    past = [Demonstration((number % 3,), ((),)) for number in range(30)]
    model = fit_c(np.concatenate([CORNERS] * 10), past, 3, seed=1)
    assert len(model.graphs) == 3
    assert [int(model.after(corner, []).argmax()) for corner in CORNERS] == [0, 1, 2]


def test_the_layer_learns_which_class_belongs_to_a_direction() -> None:
    vectors = np.eye(3, dtype=np.float32)
    targets = np.asarray([[1, 0, 0], [0, 0.5, 0.5], [0, 0, 1]], np.float32)
    model = fit_l(np.tile(vectors, (100, 1)), np.tile(targets, (100, 1)), seed=1)
    found = np.stack([model.after(vector) for vector in vectors])
    assert np.allclose(found, targets, atol=0.05)
