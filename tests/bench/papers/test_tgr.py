"""What the benchmark of dependencies counts when edges are left out."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from bench.papers import tgr
from foretool.retrieval.graph import Edge, Graph
from foretool.storage.records import ToolId

IDS = [ToolId(name) for name in "abcdef"]


def test_the_graph_with_fewer_edges_adds_less_and_the_connected_tools_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = Graph([Edge(before, after, 0.9, ()) for before, after in pairwise(IDS[:5])])
    bank = SimpleNamespace(
        ids=IDS, records=[{}], gold=[tuple(frozenset((each,)) for each in IDS[:4])],
        descriptions=lambda: np.eye(6, dtype=np.float32), queries=lambda: np.eye(6, dtype=np.float32)[5:],
    )  # fmt: skip
    # Each edge of the graph finds the tool before it; without a graph nothing is found.
    monkeypatch.setattr(
        tgr, "served", lambda bank, held, graph: [[edge.before for edge in graph] if graph is not None else []]
    )
    rows = [row for row in tgr.by_density(cast(Any, bank), (), graph) if row["method"].startswith("served")]
    assert [row["added"] for row in rows] == [0.25, 0.5, 0.75, 1.0]
    assert rows[-1]["method"] == "served: 100% of the edges"
    assert rows[-1]["connected"] == round(5 / 6, 3)
    assert rows[0]["connected"] == round(2 / 6, 3)


@pytest.mark.parametrize(
    ("kind", "expected"),
    # The query (3, 4) has length 5; the tools are (6, 8), twice as long in the same direction, and (0, 2).
    [("cosine", [1.0, 0.8]), ("dot", [50.0, 8.0]), ("L1", [-7.0, -5.0]), ("L2", [-5.0, -np.sqrt(13)])],
)
def test_the_similarities_of_appendix_a(kind: str, expected: list[float]) -> None:
    queries, tools = np.asarray([[3, 4]], np.float32), np.asarray([[6, 8], [0, 2]], np.float32)
    assert tgr.similarity(kind, queries, tools)[0].tolist() == pytest.approx(expected)
