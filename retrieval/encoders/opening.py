"""What every encoder can do, and opening one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from foretool.retrieval.encoders.weights import Endpoint, Weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]
    """(texts, dimension), each row of length 1."""

BATCH = 16
"""Texts run at once; more is no faster on two cores and takes more memory."""


class Encoder(Protocol):
    """Texts to float32 vectors of length 1; asks differently for what is searched and what it is searched with."""

    @property
    def name(self) -> str: ...

    def documents(self, texts: Sequence[str]) -> Vectors: ...

    def queries(self, texts: Sequence[str]) -> Vectors: ...


def open_encoder(weights: Weights, cache: Path | None = None, threads: int = 2, key: str = "") -> Encoder:
    """Verify and load. `cache`: folder of prepared models, made on first use; `key`: of an endpoint.

    Raises `EncoderError`.
    """
    if weights.adapter:
        from foretool.retrieval.encoders import adapted

        return adapted.shipped(weights, cache, threads)
    if weights.kind == "onnx":
        from foretool.retrieval.encoders import onnx

        return onnx.opened(weights, cache, threads)
    if weights.kind == "endpoint":
        from foretool.retrieval.encoders.endpoint import EndpointEncoder

        return EndpointEncoder(weights, Endpoint(weights.file, key))
    from foretool.retrieval.encoders.hub import SentenceTransformerEncoder

    return SentenceTransformerEncoder(weights)


def unit(vectors: Any) -> Vectors:
    """Along the last axis at length 1, as float32; zeros stay zeros."""
    import numpy as np

    rows: Vectors = np.asarray(vectors, np.float32)
    scaled: Vectors = rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), np.float32(1e-12))
    return scaled
