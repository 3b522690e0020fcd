"""TGR as it is served: the trained tool dependency graph as a model.

The graph scores no tool by itself. `graph.Graph.raised` lifts what the tools that a ranking has found need, at query
time: that changes no vector, takes in new tools at once, and measured better than the published convolution
(`bench/papers/published/tgr.py`) at every cut (`docs/benchmarks.md`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import numpy as np

from foretool.retrieval.graph import Edge, Graph
from foretool.retrieval.model_format import pack, unpack
from foretool.retrieval.rankers.learned import LearnedModel
from foretool.storage.records import ToolId

_VERSION = 1


class Tgr(LearnedModel):
    """A graph of which tools need which others, as training found it; it raises prerequisites and scores no tool by
    itself."""

    name = "tgr"
    adds_scores = False

    def __init__(self, edges: Iterable[Edge]) -> None:
        self.graph = Graph(edges)

    @classmethod
    def loads(cls, model: bytes) -> Self:
        header, arrays = unpack(model, cls.name, _VERSION)
        tools = [ToolId(tool) for tool in header["tools"]]
        edges = zip(arrays["ends"].tolist(), arrays["confidence"].tolist(), header["evidence"], strict=True)
        return cls(Edge(tools[one], tools[other], sure, tuple(evidence)) for (one, other), sure, evidence in edges)


def dumps(edges: Iterable[Edge]) -> bytes:
    """Encode a graph for `Tgr.loads`."""
    held = list(edges)
    tools = dict.fromkeys(end for edge in held for end in (edge.before, edge.after))
    place = {tool: at for at, tool in enumerate(tools)}
    ends = np.asarray([(place[edge.before], place[edge.after]) for edge in held], np.int32).reshape(len(held), 2)
    header = {"tools": list(place), "evidence": [edge.evidence for edge in held]}
    sure = np.asarray([edge.confidence for edge in held], np.float32)
    return pack(Tgr.name, _VERSION, header, {"ends": ends, "confidence": sure})
