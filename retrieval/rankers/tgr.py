"""TGR: tool vectors that have taken in the vectors of the tools they are connected with.

Published (section 3.2, eq. 3, after Kipf and Welling, without trainable parameters): with A~ = A + I and D~ its
degrees, X' = D~^-1/2 A~ D~^-1/2 X, and a query's score is its cosine to X' (section 3.3). The paper's text draws an
edge from the dependant to its prerequisite, its case study needs the flow the other way; the direction is a choice, and
the default that a prerequisite takes in its dependants.

What the proxy serves is `graph.Graph.raised` at query time: it changes no vector, takes in new tools at once, and
measured better at every cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from foretool.retrieval.graph import Edge, Graph
from foretool.retrieval.model_format import Floats, pack, unpack
from foretool.retrieval.ranking import Query
from foretool.storage.records import ToolId

Direction = Literal["prerequisite", "dependant", "symmetric"]
"""Whose vector takes in the other's."""

VERSION = 1


class Tgr:
    """The graph as it was trained, and the convolution over the vectors of a corpus."""

    name = "tgr"

    def __init__(self, edges: Iterable[Edge], direction: Direction = "prerequisite") -> None:
        self.graph = Graph(edges)
        self.direction: Direction = direction
        self._vectors: Floats | None = None

    @classmethod
    def loads(cls, model: bytes) -> Tgr:
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
        """Follow a corpus; without vectors nothing is scored."""
        self._vectors = None if vectors is None else convolved(vectors, adjacency(self.graph, tools), self.direction)

    def score(self, query: Query, vector: Floats | None) -> Floats:
        """(slots,): the cosine of the query to the convolved vectors."""
        if self._vectors is None or vector is None:
            return np.zeros(0 if self._vectors is None else len(self._vectors), np.float32)
        cosines: Floats = self._vectors @ vector
        return cosines


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


def adjacency(graph: Graph, tools: Sequence[ToolId | None]) -> Floats:
    """(slots, slots): 1 where the tool of the row is a prerequisite of the column's."""
    slot_of = {tool: slot for slot, tool in enumerate(tools) if tool is not None}
    matrix = np.zeros((len(tools), len(tools)), np.float32)
    for edge in graph:
        if edge.before in slot_of and edge.after in slot_of:
            matrix[slot_of[edge.before], slot_of[edge.after]] = 1.0
    return matrix


def convolved(vectors: Floats, prerequisites: Floats, direction: Direction = "prerequisite") -> Floats:
    """Eq. 3, each row then of length 1; `vectors` (slots, dimension), `prerequisites` as `adjacency` gives it."""
    taken = {
        "prerequisite": prerequisites,
        "dependant": prerequisites.T,
        "symmetric": np.maximum(prerequisites, prerequisites.T),
    }[direction]
    with_self = taken + np.eye(len(taken), dtype=np.float32)
    scale = 1.0 / np.sqrt(with_self.sum(axis=1))
    mixed = (scale[:, None] * with_self * scale[None, :]) @ vectors
    lengths = np.linalg.norm(mixed, axis=1, keepdims=True)
    unit: Floats = (mixed / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit
