"""An encoder whose queries go through trained weights, and whose documents do not.

What PORTS trains is an adapter of the queries alone (`retrieval.adapters`), so tools keep the vectors that the
untrained encoder gave them: nothing is embedded again when a model is promoted or rolled back. A server holds one model
in memory as before, for it only ever asks for queries; the untrained one is opened when documents are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from foretool.retrieval import adapters
from foretool.retrieval.encoders import onnx
from foretool.retrieval.encoders.weights import EncoderError, Weights, locate, verified
from foretool.retrieval.learned import ModelError

if TYPE_CHECKING:
    from foretool.retrieval.encoders.running import Vectors


def opened(weights: Weights, model: bytes, cache: Path, threads: int = 2) -> AdaptedEncoder:
    """`model`: an adapter as bytes. Raises `ModelError` if it is none or of other weights, and `EncoderError`."""
    adapters.check(adapters.loads(model), weights.sha256)
    return AdaptedEncoder(weights, model, cache, threads)


def shipped(weights: Weights, cache: Path | None, threads: int = 2) -> AdaptedEncoder:
    """With the adapter that comes with us. Raises `EncoderError`."""
    model = Path(adapters.__file__).with_name(weights.adapter)
    try:
        return opened(weights, model.read_bytes(), cache or cache_folder(), threads)
    except (ModelError, OSError) as error:
        raise EncoderError(f"encoder {weights.name!r}: {error}") from error


def cache_folder() -> Path:
    """Where prepared models are kept when nobody says: 90 MB each."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "foretool" / "encoders"


def prepared(weights: Weights, model: bytes, cache: Path) -> Path:
    """The model with the changes in it, as onnxruntime has optimised it; made once per adapter, in a second."""
    import onnxruntime  # type: ignore[import-untyped]

    adapter = adapters.loads(model)
    adapters.check(adapter, weights.sha256)
    path = locate(weights)
    if path is None:
        raise EncoderError(f"encoder {weights.name!r}: {weights.package or weights.file} is not there")
    told = f"{weights.sha256[:16]}-{sha256(model).hexdigest()[:16]}-{onnxruntime.__version__}"
    folder = cache / told
    if (folder / "model.onnx").is_file():
        return folder / "model.onnx"
    made, apart = cache / f"{told}.{os.getpid()}", cache / f"{told}.{os.getpid()}.apart"
    for each in (made, apart):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        whole = adapters.take_apart(verified(path, weights), apart)
        adapters.apply(adapter, whole)
        onnx.optimise(whole, made)
        made.rename(folder)
    except OSError:
        if not (folder / "model.onnx").is_file():  # or another process was first
            raise
    finally:
        for each in (made, apart):
            rmtree(each, ignore_errors=True)
    return folder / "model.onnx"


class AdaptedEncoder:
    """See the module; either model is opened when it is first asked for."""

    def __init__(self, weights: Weights, model: bytes, cache: Path, threads: int = 2) -> None:
        self.weights = weights
        self._model, self._cache, self._threads = model, cache, threads
        self._queries: onnx.OnnxEncoder | None = None
        self._documents: onnx.OnnxEncoder | None = None

    @property
    def name(self) -> str:
        return self.weights.name

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Embed what tools are searched with, as it was trained."""
        if self._queries is None:
            self._queries = onnx.mapped(self.weights, prepared(self.weights, self._model, self._cache), self._threads)
        return self._queries.queries(texts)

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed what is searched, as before training."""
        if self._documents is None:
            self._documents = onnx.opened(self.weights, self._cache, self._threads)
        return self._documents.documents(texts)
