"""A trained graph as a model."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from foretool.learning.rankers.tgr import Tgr, dumps
from foretool.retrieval.graph import Edge
from foretool.retrieval.model_format import ModelError
from foretool.retrieval.ranking import Query
from foretool.storage.records import ToolId

LOGIN, DELETE = (ToolId(each) for each in ("login", "delete"))
EDGES = [Edge(LOGIN, DELETE, 0.75, ("schema: token",))]


def test_a_graph_scores_nothing_by_itself() -> None:
    model = Tgr(EDGES)
    assert model.score(Query(), None).tolist() == []
    model.align([LOGIN, DELETE], np.eye(2, dtype=np.float32))
    assert model.score(Query(("delete it",)), np.ones(2, np.float32)).tolist() == [0.0, 0.0]


def test_a_graph_comes_back_from_its_bytes() -> None:
    assert list(Tgr.loads(dumps(EDGES)).graph) == EDGES
    assert list(Tgr.loads(dumps([])).graph) == []
    with pytest.raises(ModelError, match="tgr"):
        Tgr.loads(dumps(EDGES)[:50])


def test_following_thousands_of_tools_needs_no_matrix_of_tools_by_tools() -> None:
    tools = [ToolId(f"tool_{number}") for number in range(4000)]
    model = Tgr(Edge(before, after, 0.5, ()) for before, after in pairwise(tools))
    tracemalloc.start()
    model.align(tools, None)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert held < len(tools) ** 2 / 100
