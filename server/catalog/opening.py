"""Opens any encoder that the settings can choose: in this process, or behind an endpoint."""

from __future__ import annotations

from pathlib import Path

from foretool.retrieval import encoders
from foretool.retrieval.encoders import Encoder, Endpoint, Weights


def open_encoder(weights: Weights, cache: Path | None = None, key: str = "") -> Encoder:
    """Open an encoder; `cache` is the folder of prepared models, `key` lets us in at an endpoint.

    Raises `EncoderError`.
    """
    if weights.kind == "endpoint":
        from foretool.server.catalog.endpoint import EndpointEncoder

        return EndpointEncoder(weights, Endpoint(weights.file, key))
    from foretool.server.catalog.prepare_worker import prepare_apart

    return encoders.open_encoder(weights, cache, prepare=prepare_apart)
