"""A trained encoder beside the untrained one (PORTS): the cosine of a task, read with what was learned, to every tool.

The tools' vectors are those that are there already (`encoders.adapted`); only the task is embedded once more, 2 to 3
ms. As a part of the sum it is promoted, replayed and rolled back like every other model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from foretool.retrieval import adapters, encoders
from foretool.retrieval.encoders import Encoder, EncoderError
from foretool.retrieval.encoders.adapted import cache_folder, opened
from foretool.retrieval.learned import Floats, ModelError
from foretool.retrieval.ranking import Query
from foretool.storage.records import ToolId

NAME = "ports"


def base_of(adapter: adapters.Adapter) -> encoders.Weights:
    """The installed weights that an adapter belongs to. Raises `ModelError`."""
    for weights in encoders.MANIFEST:
        if weights.sha256 == adapter.base and encoders.locate(weights) is not None:
            return weights.untrained
    raise ModelError(f"ports: trained on weights {adapter.base[:12]}, which are not installed; {encoders.INSTALL}")


class Ports:
    """A `Learned` model."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._slots = 0
        self._vectors: Floats | None = None  # (slots, dimension), 0 where there is no tool

    @property
    def name(self) -> str:
        return NAME

    @classmethod
    def loads(cls, model: bytes) -> Self:
        """Raises `ModelError`."""
        weights = base_of(adapters.loads(model))
        try:
            encoder = opened(weights, model, cache_folder())
            encoder.queries(["warm"])
        except (EncoderError, OSError) as error:
            raise ModelError(f"ports: {error}") from error
        return cls(encoder)

    def align(self, tools: Sequence[ToolId | None], vectors: Floats | None) -> None:
        """Follow a corpus; `vectors` of the encoder that was trained on, which must be the first."""
        self._slots = len(tools)
        self._vectors = vectors if vectors is not None and len(vectors) == len(tools) else None

    def score(self, query: Query, vector: Floats | None) -> Floats:
        """(slots,): the best cosine of any line; zeros without words, or without vectors of the tools."""
        vectors, lines = self._vectors, [line for line in query.lines if line.strip()]
        if vectors is None or vector is None or not lines or vector.shape[-1] != vectors.shape[1]:
            return np.zeros(self._slots, np.float32)
        found: Floats = (self._encoder.queries(lines) @ vectors.T).max(0)
        return np.where(vectors.any(1), found, np.float32(0))
