"""Opens the encoder that weights describe, whatever its kind; imports only what that kind needs."""

from __future__ import annotations

from pathlib import Path

from foretool.retrieval.encoders.base import Encoder, EncoderError
from foretool.retrieval.encoders.weights import Prepare, Weights


def open_encoder(
    weights: Weights, cache: Path | None = None, threads: int = 2, prepare: Prepare | None = None
) -> Encoder:
    """Verify and load an encoder that runs in this process. Raises `EncoderError`.

    `cache` is the folder of prepared models, which are made on first use; `prepare` makes the model of a trained
    encoder elsewhere than here.
    """
    if weights.adapter:
        from foretool.retrieval.encoders.adapted import open_shipped

        return open_shipped(weights, cache, threads, prepare)
    if weights.kind == "onnx":
        from foretool.retrieval.encoders.onnx import open_onnx

        return open_onnx(weights, cache, threads)
    if weights.kind == "sentence-transformers":
        from foretool.retrieval.encoders.hub import SentenceTransformerEncoder

        return SentenceTransformerEncoder(weights)
    raise EncoderError(f"encoder {weights.name!r}: a model at {weights.file} cannot be opened in this process")
