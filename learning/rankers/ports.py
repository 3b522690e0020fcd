"""PORTS as it is served: a trained encoder reads the task in the place of the encoder that it was made from.

The vectors of tools stay as they are (`encoders.adapted`); only the task is embedded once more, in 2 to 3 ms. The model
is a part of the sum, so it is promoted, replayed and rolled back like every other model. The part is the cosines of the
new reading less those of the old one in the sum, so that together they give the new reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.encoders import Encoder
from foretool.retrieval.encoders.adapted import open_trained
from foretool.retrieval.model_format import Floats
from foretool.retrieval.rankers.dense import weight_of
from foretool.retrieval.rankers.learned import LearnedModel
from foretool.retrieval.ranking import Query
from foretool.retrieval.score_sum import z_scores
from foretool.storage.records import ToolId

NEW = 1.5
"""How many standard deviations the new reading counts (`docs/benchmarks.md`); the one it replaces counts what it counts
in the sum."""


class Ports(LearnedModel):
    """Scores tools by the cosine of the task as the trained encoder reads it."""

    name = "ports"
    in_deviations = True

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._vectors: Floats | None = None  # (slots, dimension), 0 where there is no tool

    @classmethod
    def loads(cls, model: bytes) -> Self:
        return cls(open_trained(model))

    def align(self, tools: Sequence[ToolId | None], vectors: Floats | None) -> None:
        """Follow a corpus. `vectors`: by the encoder whose adapter was trained, which must be the first of the
        encoders."""
        self.size = len(tools)
        self._vectors = vectors if vectors is not None and len(vectors) == len(tools) else None

    def score(self, query: Query, vector: Floats | None) -> Floats:
        """Return by how much each tool's score is to change, in the unit of the sum; (slots,). The trained score is
        `NEW` deviations of the best cosine of any line, and the deviations that the sum already has from `vector` are
        subtracted. Zeros without words, or without vectors of the tools."""
        vectors, lines = self._vectors, [line for line in query.lines if line.strip()]
        if vectors is None or vector is None or not lines or vector.shape[-1] != vectors.shape[1]:
            return np.zeros(self.size, np.float32)
        held: NDArray[np.bool_] = np.any(vectors, axis=1)
        read: Floats = (self._encoder.queries(lines) @ vectors.T).max(0)
        old = np.float32(weight_of(self.encoders))
        found: Floats = np.float32(NEW) * z_scores(read, held) - old * z_scores(vectors @ vector, held)
        return found
