"""Training draws a graph from schemas, with the evidence of each edge."""

from __future__ import annotations

import pytest
from tools import DEPENDENT_TOOLS

from foretool.learning.rankers.tgr import Tgr
from foretool.learning.training import Material, TooLittle
from foretool.learning.training.tgr import METHOD
from foretool.storage.records import ToolId


def nothing(_: str, __: float) -> None:
    """No progress is shown."""


def test_training_leaves_a_graph_with_its_evidence() -> None:
    model = Tgr.loads(METHOD.train(Material(DEPENDENT_TOOLS, ()), nothing))
    (edge,) = model.graph.producers(ToolId("u__post"))
    assert (edge.before, edge.evidence) == ("u__login", ("schema: u__post requires 'token', u__login gives it",))


def test_tools_without_any_dependency_are_too_little() -> None:
    with pytest.raises(TooLittle, match="no dependency among 1 tools"):
        METHOD.train(Material(DEPENDENT_TOOLS[2:], ()), nothing)
