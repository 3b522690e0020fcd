"""TGR as published: tool vectors that have taken in the vectors of the tools they are connected with.

Section 3.2, eq. 3 (after Kipf and Welling, without trainable parameters): with A~ = A + I and D~ its degrees,
X' = D~^-1/2 A~ D~^-1/2 X, and the score of a query is its cosine to X' (section 3.3). The paper's text draws an edge
from the dependant to its prerequisite, but its case study needs the flow the other way. So the direction is a choice,
and by default a prerequisite takes in its dependants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from foretool.retrieval.graph import Graph
from foretool.retrieval.model_format import Floats
from foretool.storage.records import ToolId

Direction = Literal["prerequisite", "dependant", "symmetric"]
"""Whose vector takes in the other's."""


def adjacency(graph: Graph, tools: Sequence[ToolId | None]) -> Floats:
    """(slots, slots): 1 where the tool of the row is a prerequisite of the column's."""
    slot_of = {tool: slot for slot, tool in enumerate(tools) if tool is not None}
    matrix = np.zeros((len(tools), len(tools)), np.float32)
    for edge in graph:
        if edge.before in slot_of and edge.after in slot_of:
            matrix[slot_of[edge.before], slot_of[edge.after]] = 1.0
    return matrix


def convolve(vectors: Floats, prerequisites: Floats, direction: Direction = "prerequisite") -> Floats:
    """Apply eq. 3 and scale each row to length 1; `vectors` (slots, dimension), `prerequisites` as of `adjacency`."""
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
