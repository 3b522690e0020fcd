"""The discriminator: its losses by hand, its gradient by differences, and the graph that training leaves."""

from __future__ import annotations

import json

import numpy as np
import pytest
from requirements import requirement

from foretool.retrieval.fields import fields
from foretool.retrieval.model_format import Floats
from foretool.retrieval.rankers.tgr import Tgr
from foretool.retrieval.training import Material, TooLittle
from foretool.retrieval.training.tgr import AFTER, BEFORE, METHOD, NONE, Discriminator, Pair, class_weights, pairs_of
from foretool.storage.records import Tool, ToolId


def tool(name: str, takes: str, gives: str) -> Tool:
    definition = {
        "name": name,
        "inputSchema": {"properties": {each: {} for each in takes.split()}, "required": takes.split()},
        "outputSchema": {"properties": {each: {} for each in gives.split()}},
    }
    return Tool(ToolId(f"u__{name}"), "u", name, json.dumps(definition).encode(), "")


TOOLS = (tool("login", "user", "token"), tool("post", "token text", "post_id"), tool("sum", "a b", "total"))


def nothing(_: str, __: float) -> None:
    """No progress is shown."""


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
    balanced, imbalanced = pairs_of([fields(each) for each in TOOLS], seed=7)
    assert balanced[:2] == [Pair(0, 1, BEFORE), Pair(1, 0, AFTER)]
    assert {(pair.first, pair.second) for pair in imbalanced if pair.label == NONE} == {(0, 2), (1, 2)}


def test_training_leaves_a_graph_with_its_evidence() -> None:
    model = Tgr.loads(METHOD.train(Material(TOOLS, ()), nothing))
    (edge,) = model.graph.producers(ToolId("u__post"))
    assert (edge.before, edge.evidence) == ("u__login", ("schema: u__post requires 'token', u__login gives it",))


def test_tools_without_any_dependency_are_too_little() -> None:
    with pytest.raises(TooLittle, match="no dependency among 1 tools"):
        METHOD.train(Material(TOOLS[2:], ()), nothing)
