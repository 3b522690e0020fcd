"""TGR as published: the losses of the discriminator and the convolution, against cases computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from requirements import requirement
from tools import DEPENDENT_TOOLS

from bench.papers.published.tgr import (
    AFTER,
    BEFORE,
    NONE,
    Discriminator,
    Pair,
    adjacency,
    class_weights,
    convolve,
    pairs_of,
)
from foretool.retrieval.document import definition_fields
from foretool.retrieval.graph import Edge, Graph
from foretool.retrieval.model_format import Floats
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
    np.testing.assert_allclose(convolve(VECTORS, prerequisites, scaled=False)[0], [0.5, 0.5**0.5], atol=1e-6)


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


@requirement("tgr:eq2")
def test_eq_2_gives_every_class_the_same_say() -> None:
    # Four pairs of class 1, one of class 0, none of class 2: each class' weights add up to 1.
    assert class_weights(np.asarray([1, 1, 0, 1, 1])).tolist() == [0.25, 0.25, 1.0, 0.25, 0.25]


def test_swapping_two_tools_swaps_the_classes() -> None:
    model = Discriminator(3, 2, seed=1)
    model.weights[:] = [0.5, -1.0]
    a, b = np.asarray([[1, 0, 0]], np.float32), np.asarray([[0, 1, 1]], np.float32)
    ab, ba = np.asarray([[1, 2]], np.float32), np.asarray([[1, 0]], np.float32)
    forth, back = model.probabilities(a, b, ab, ba)[0], model.probabilities(b, a, ba, ab)[0]
    np.testing.assert_allclose(forth, back[::-1], rtol=1e-6)


@requirement("tgr:eq1")
def test_the_gradient_is_that_of_the_cross_entropy() -> None:
    draw = np.random.default_rng(3)
    model = Discriminator(3, 2, seed=3)
    given = tuple(draw.normal(size=(4, size)).astype(np.float32) for size in (3, 3, 2, 2))
    labels = np.asarray([BEFORE, NONE, AFTER, BEFORE])

    def loss() -> float:
        return float(-np.log(model.probabilities(*given)[np.arange(4), labels]).mean())

    slope: Floats = ((model.probabilities(*given) - np.eye(3)[labels]) / 4).astype(np.float32)
    for parameter, gradient in zip(model.parameters, model.gradients(*given, slope), strict=True):
        at = (0,) * parameter.ndim
        parameter[at] += 0.01
        above = loss()
        parameter[at] -= 0.02
        below = loss()
        parameter[at] += 0.01
        assert (above - below) / 0.02 == pytest.approx(float(gradient[at]), abs=1e-3)


def test_pairs_come_in_both_orders_with_their_classes() -> None:
    balanced, imbalanced = pairs_of([definition_fields(each) for each in DEPENDENT_TOOLS], seed=7)
    assert balanced[:2] == [Pair(0, 1, BEFORE), Pair(1, 0, AFTER)]
    assert {(pair.first, pair.second) for pair in imbalanced if pair.label == NONE} == {(0, 2), (1, 2)}
