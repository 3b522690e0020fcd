"""An installed encoder whose weights were trained: with the adapter that ships, or with one that was trained here.

The adapter that ships reads queries and tools (`Weights.reads_tools`). One that was trained here (PORTS, MassTool)
reads queries alone, and tools keep the vectors of the one that ships, so nothing is embedded again when a model is
promoted or rolled back. A server embeds queries alone and so holds one model in memory; where documents need another
one, it is opened for the first of them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from errno import ENOSPC
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from foretool.retrieval import adapters
from foretool.retrieval.encoders import onnx
from foretool.retrieval.encoders.base import EncoderError
from foretool.retrieval.encoders.onnx import import_runtime
from foretool.retrieval.encoders.weights import (
    INSTALL,
    MANIFEST,
    Prepare,
    Weights,
    locate,
    needed_room,
    prepared_name,
    verify,
)
from foretool.retrieval.model_format import ModelError

if TYPE_CHECKING:
    from foretool.retrieval.encoders.base import Encoder, Vectors

log = logging.getLogger(__name__)


def open_trained(model: bytes, cache: Path | None, prepare: Prepare | None = None) -> AdaptedEncoder:
    """Open the installed encoder with an adapter that was trained here, ready for queries. Raises `ModelError`."""
    base = adapters.loads(model).base
    weights = next((each.for_tools for each in MANIFEST if each.sha256 == base and locate(each) is not None), None)
    if weights is None:
        raise ModelError(f"ports: trained on weights {base[:12]}, which are not installed; {INSTALL}")
    try:
        encoder = AdaptedEncoder(weights, model, cache, prepare)
        encoder.queries(["warm"])  # no search waits until it is open
    except (EncoderError, OSError) as error:
        raise ModelError(f"ports: {error}") from error
    return encoder


def open_shipped(
    weights: Weights, cache: Path | None, prepare: Prepare | None = None, in_bulk: bool = False
) -> Encoder:
    """Open an encoder with the adapter of this package, ready for queries. Where there is no room to prepare it, not
    even for a moment, the untrained encoder answers if it embeds the tools. Raises `EncoderError`."""
    try:
        encoder = AdaptedEncoder(weights, read_shipped(weights), cache, prepare, in_bulk)
    except (ModelError, OSError) as error:
        raise EncoderError(f"encoder {weights.name!r}: {error}") from error
    try:
        encoder.queries(["warm"])  # no search waits until it is open
    except OSError as error:
        if weights.reads_tools:  # its vectors of tools are no use to another encoder
            raise EncoderError(f"encoder {weights.name!r} cannot be prepared: {error}") from error
        log.warning("encoder %s cannot be prepared, so %s is asked: %s", weights.name, weights.base, error)
        return onnx.open_onnx(weights.untrained, None, in_bulk)
    return encoder


def read_shipped(weights: Weights) -> bytes:
    """Read the adapter of this package. Raises `ModelError` if it is not the known one, and `OSError`."""
    model = Path(adapters.__file__).with_name(weights.adapter).read_bytes()
    if (found := sha256(model).hexdigest()) != weights.adapter_sha256:
        raise ModelError(
            f"{weights.adapter} has sha256 {found}, expected {weights.adapter_sha256}; install foretool again"
        )
    return model


def cache_folder() -> Path:
    """Return the folder of prepared models where no other is given; each model takes 133 MB."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # A relative folder would be one of the working folder.
    return Path(base if base.startswith("/") else "~/.cache").expanduser() / "foretool" / "encoders"


def prepare_model(weights: Weights, model: bytes, cache: Path) -> Path:
    """Apply an adapter to the installed model and optimise it, once, in a second. `OSError` says there is no room."""
    path = locate(weights)
    if path is None:
        raise EncoderError(f"encoder {weights.name!r}: {weights.package or weights.file} is not there")

    def write(made: Path) -> None:
        adapter = adapters.loads(model)
        adapters.check_base(adapter, weights.sha256)
        if disk_usage(cache).free < (needed := needed_room(path)):
            raise OSError(ENOSPC, f"no room to prepare an encoder, {needed >> 20} MiB must be free", str(cache))
        with TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as apart:
            whole = onnx.optimise(verify(path, weights), Path(apart), "ENABLE_BASIC")
            adapters.apply_adapter(adapter, whole)
            onnx.optimise(whole, made)

    return onnx.fill_folder(prepared_folder(weights, model, cache), write)


def prepared_folder(weights: Weights, model: bytes, cache: Path) -> Path:
    """Return the folder of one prepared model, given its adapter."""
    return cache / prepared_name(weights, import_runtime().__version__, sha256(model).hexdigest())


class AdaptedEncoder:
    """Embeds queries with an adapter, and documents with the one that ships if that reads tools, else with none. Opens
    each model on first use."""

    def __init__(
        self, weights: Weights, model: bytes, cache: Path | None, prepare: Prepare | None = None, in_bulk: bool = False
    ) -> None:
        """`model` is the adapter of queries, `cache` the folder of prepared models, `in_bulk` as in
        `onnx.open_session`. Raises `ModelError` for other bytes."""
        # To decode the one that ships takes 15 ms of each command, and it is known to belong to its weights.
        if sha256(model).hexdigest() != weights.adapter_sha256:
            adapters.check_base(adapters.loads(model), weights.sha256)
        self.weights, self.name = weights, weights.name
        self._model, self._cache, self._prepare = model, cache, prepare or prepare_model
        self._in_bulk = in_bulk

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Embed texts to search with, through the trained weights."""
        return self._queries.queries(texts)

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts that are searched."""
        return self._documents.documents(texts)

    @cached_property
    def _queries(self) -> onnx.OnnxEncoder:
        return self._open(self._model)

    @cached_property
    def _documents(self) -> onnx.OnnxEncoder:
        if not self.weights.reads_tools:
            return onnx.open_onnx(self.weights, self._cache, self._in_bulk)
        shipped = read_shipped(self.weights)
        return self._queries if shipped == self._model else self._open(shipped)

    def _open(self, model: bytes) -> onnx.OnnxEncoder:
        """Open the installed model with an adapter. Raises `OSError`."""
        if self._cache is not None:
            try:
                return self._open_in(self._cache, model)
            except OSError as error:
                log.info("%s: %s", self._cache, error)
        # A mapped file stays readable after it is deleted.
        with TemporaryDirectory(prefix="foretool-", ignore_cleanup_errors=True) as scratch:
            return self._open_in(Path(scratch), model)

    def _open_in(self, cache: Path, model: bytes) -> onnx.OnnxEncoder:
        return onnx.open_mapped(self.weights, self._prepare(self.weights, model, cache), self._in_bulk)
