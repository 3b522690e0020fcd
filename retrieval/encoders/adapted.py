"""An installed encoder whose weights were trained: with the adapter that ships, or with one that was trained here.

The adapter that ships reads queries and tools (`Weights.reads_tools`). One that was trained here (PORTS, MassTool)
reads queries alone, and tools keep the vectors of the one that ships, so nothing is embedded again when a model is
promoted or rolled back. A server embeds queries alone and so holds one model in memory; where documents need another
one, it is opened for the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from foretool.retrieval import adapters
from foretool.retrieval.encoders import onnx
from foretool.retrieval.encoders.base import EncoderError
from foretool.retrieval.encoders.weights import INSTALL, MANIFEST, Weights, locate, verify
from foretool.retrieval.model_format import ModelError

if TYPE_CHECKING:
    from foretool.retrieval.encoders.base import Vectors


def open_trained(model: bytes) -> AdaptedEncoder:
    """Open the installed encoder with an adapter that was trained here, ready for queries. Raises `ModelError`."""
    base = adapters.loads(model).base
    weights = next((each.for_tools for each in MANIFEST if each.sha256 == base and locate(each) is not None), None)
    if weights is None:
        raise ModelError(f"ports: trained on weights {base[:12]}, which are not installed; {INSTALL}")
    try:
        encoder = AdaptedEncoder(weights, model)
        encoder.queries(["warm"])  # no search waits until it is open
    except (EncoderError, OSError) as error:
        raise ModelError(f"ports: {error}") from error
    return encoder


def open_shipped(weights: Weights, in_bulk: bool = False) -> AdaptedEncoder:
    """Open an encoder with the adapter of this package, ready for queries. Raises `EncoderError`."""
    try:
        encoder = AdaptedEncoder(weights, read_shipped(weights), in_bulk)
        encoder.queries(["warm"])  # no search waits until it is open
    except (ModelError, OSError) as error:
        raise EncoderError(f"encoder {weights.name!r}: {error}") from error
    return encoder


def read_shipped(weights: Weights) -> bytes:
    """Read the adapter of this package. Raises `ModelError` if it is not the known one, and `OSError`."""
    model = Path(adapters.__file__).with_name(weights.adapter).read_bytes()
    if (found := sha256(model).hexdigest()) != weights.adapter_sha256:
        raise ModelError(
            f"{weights.adapter} has sha256 {found}, expected {weights.adapter_sha256}; install foretool again"
        )
    return model


class AdaptedEncoder:
    """Embeds queries with an adapter, and documents with the one that ships if that reads tools, else with none. Opens
    each model on first use."""

    def __init__(self, weights: Weights, model: bytes, in_bulk: bool = False) -> None:
        """`model` is the adapter of queries, `in_bulk` as in `onnx.open_session`. Raises `ModelError` for other
        bytes."""
        # To decode the one that ships takes 15 ms of each command, and it is known to belong to its weights.
        if sha256(model).hexdigest() != weights.adapter_sha256:
            adapters.check_base(adapters.loads(model), weights.sha256)
        self.weights, self.name = weights, weights.name
        self._model, self._in_bulk = model, in_bulk

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Embed texts to search with, through the trained weights."""
        return self._queries.queries(texts)

    def documents(self, texts: Sequence[str]) -> Vectors:
        return self._documents.documents(texts)

    @cached_property
    def _queries(self) -> onnx.OnnxEncoder:
        return self._open(self._model)

    @cached_property
    def _documents(self) -> onnx.OnnxEncoder:
        if not self.weights.reads_tools:
            return onnx.open_onnx(self.weights, self._in_bulk)
        shipped = read_shipped(self.weights)
        return self._queries if shipped == self._model else self._open(shipped)

    def _open(self, model: bytes) -> onnx.OnnxEncoder:
        """Open the installed model with an adapter, in .3 s. Raises `ModelError`, `EncoderError` and `OSError`."""
        file = verify(onnx.installed_file(self.weights), self.weights).read_bytes()
        return onnx.OnnxEncoder(self.weights, adapters.apply_adapter(adapters.loads(model), file), self._in_bulk)
