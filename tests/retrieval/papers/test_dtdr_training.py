"""Fitting DTDR-C and DTDR-L: clusters and layers on points whose answer is known."""

from __future__ import annotations

import numpy as np

from foretool.retrieval.papers.dtdr_training import fit_c, fit_l, k_means
from foretool.retrieval.training.demonstrations import Demonstration

CORNERS = np.asarray([[0, 0], [0, 9], [9, 0]], np.float32)
POINTS = np.concatenate([CORNERS + np.float32(shift) for shift in (0.0, 0.1, 0.2)])


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
