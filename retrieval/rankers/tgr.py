"""TGR as it is served: the trained tool dependency graph as a model.

The graph scores no tool by itself. `graph.Graph.raised` lifts what the tools that a ranking has found need, at query
time: that changes no vector, takes in new tools at once, and measured better than the published convolution
(`retrieval/papers/tgr.py`) at every cut (`docs/benchmarks.md`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np

from foretool.retrieval.encoders.weights import Prepare
from foretool.retrieval.graph import Edge, Graph
from foretool.retrieval.model_format import Floats, pack, unpack
from foretool.retrieval.rankers.learned import LearnedModel, Traits
from foretool.retrieval.ranking import Query
from foretool.storage.records import ToolId

VERSION = 1


class Tgr(LearnedModel):
    """The graph as it was trained."""

    name = "tgr"
    traits = Traits(adds_scores=False)

    def __init__(self, edges: Iterable[Edge]) -> None:
        self._graph = Graph(edges)
        self._slots = 0

    @property
    def graph(self) -> Graph:
        return self._graph

    @classmethod
    def loads(cls, model: bytes, prepare: Prepare | None = None) -> Self:
        """Raises `ModelError`."""
        header, arrays = unpack(model, cls.name, VERSION)
        tools = [ToolId(tool) for tool in header["tools"]]
        ends = arrays["ends"].tolist()
        sure = arrays["confidence"].tolist()
        return cls(
            Edge(tools[before], tools[after], confidence, tuple(evidence))
            for (before, after), confidence, evidence in zip(ends, sure, header["evidence"], strict=True)
        )

    def align(self, tools: Sequence[ToolId | None], vectors: Floats | None) -> None:
        """Follow a corpus; the graph knows tools by id, so only their number changes."""
        self._slots = len(tools)

    def score(self, query: Query, vector: Floats | None) -> Floats:
        """Zeros for all slots; (slots,)."""
        return np.zeros(self._slots, np.float32)


def dumps(edges: Iterable[Edge]) -> bytes:
    """A graph as a model."""
    held = list(edges)
    place = {
        tool: at for at, tool in enumerate(dict.fromkeys(end for edge in held for end in (edge.before, edge.after)))
    }
    ends = np.asarray([(place[edge.before], place[edge.after]) for edge in held], np.int32).reshape(len(held), 2)
    header = {"tools": list(place), "evidence": [edge.evidence for edge in held]}
    sure = np.asarray([edge.confidence for edge in held], np.float32)
    return pack(Tgr.name, VERSION, header, {"ends": ends, "confidence": sure})
