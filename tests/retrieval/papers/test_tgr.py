"""TGR's convolution, against a case worked out by hand."""

from __future__ import annotations

import numpy as np
from requirements import requirement

from foretool.retrieval.graph import Edge, Graph
from foretool.retrieval.papers.tgr import adjacency, convolve
from foretool.storage.records import ToolId

LOGIN, DELETE, OTHER = (ToolId(each) for each in ("login", "delete", "other"))
EDGES = [Edge(LOGIN, DELETE, 0.75, ("schema: token",))]
VECTORS = np.asarray([[1, 0], [0, 1], [0.6, 0.8]], np.float32)


@requirement("tgr:eq3")
def test_eq_3_mixes_a_prerequisite_with_what_depends_on_it() -> None:
    prerequisites = adjacency(Graph(EDGES), [LOGIN, DELETE, OTHER])
    # A~ = [[1,1,0],[0,1,0],[0,0,1]], degrees 2, 1, 1: login' = 1/2 (1,0) + 1/sqrt(2) (0,1), of length sqrt(3)/2.
    expected = [[0.5 / 0.75**0.5, 0.5**0.5 / 0.75**0.5], [0, 1], [0.6, 0.8]]
    np.testing.assert_allclose(convolve(VECTORS, prerequisites), expected, atol=1e-6)


def test_the_direction_is_a_choice() -> None:
    prerequisites = adjacency(Graph(EDGES), [LOGIN, DELETE, OTHER])
    dependant = convolve(VECTORS, prerequisites, "dependant")
    np.testing.assert_allclose(dependant[0], [1, 0], atol=1e-6)
    np.testing.assert_allclose(dependant[1], [(2 / 3) ** 0.5, (1 / 3) ** 0.5], atol=1e-6)
    # Both of degree 2: login' = 1/2 (1,0) + 1/2 (0,1).
    np.testing.assert_allclose(convolve(VECTORS, prerequisites, "symmetric")[:2], [[0.5**0.5] * 2] * 2, atol=1e-6)


def test_the_prerequisite_of_what_was_asked_for_scores_higher_than_alone() -> None:
    vectors = np.asarray([[1, 0], [0, 0], [0, 1]], np.float32)
    mixed = convolve(vectors, adjacency(Graph(EDGES), [LOGIN, None, DELETE]))
    login, dropped, delete = (mixed @ np.asarray([0, 1], np.float32)).tolist()
    assert (round(login, 4), dropped, delete) == (0.8165, 0.0, 1.0)
