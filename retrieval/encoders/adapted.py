"""An encoder whose queries go through trained weights, and whose documents do not.

What PORTS trains is an adapter of the queries alone (`retrieval.adapters`), so tools keep the vectors that the
untrained encoder gave them: nothing is embedded again when a model is promoted or rolled back. A server holds one model
in memory as before, for it only ever asks for queries; the untrained one is opened when documents are asked for.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from errno import ENOSPC
from hashlib import sha256
from pathlib import Path
from shutil import disk_usage, rmtree
from subprocess import run
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from foretool.retrieval import adapters
from foretool.retrieval.encoders import onnx
from foretool.retrieval.encoders.weights import BY_NAME, EncoderError, Weights, locate, verified
from foretool.retrieval.model_format import ModelError

if TYPE_CHECKING:
    from foretool.retrieval.encoders.opening import Encoder, Vectors

log = logging.getLogger(__name__)

ROOM = 10
"""How many times the size of the installed model has to be free: its bytes become floats, twice."""


def opened(weights: Weights, model: bytes, cache: Path | None, threads: int = 2) -> AdaptedEncoder:
    """`model`: an adapter as bytes; `cache`: where prepared models are kept. Raises `ModelError` if it is none or of
    other weights, and `EncoderError`."""
    adapters.check(adapters.loads(model), weights.sha256)
    return AdaptedEncoder(weights, model, cache, threads)


def shipped(weights: Weights, cache: Path | None, threads: int = 2) -> Encoder:
    """With the adapter that comes with us, ready for queries; without `cache` prepared each time anew.

    Where there is no room to prepare it, not even for a moment, the untrained encoder. Raises `EncoderError`.
    """
    try:
        encoder = opened(weights, _read(weights), cache, threads)
    except (ModelError, OSError) as error:
        raise EncoderError(f"encoder {weights.name!r}: {error}") from error
    try:
        encoder.warm()
    except OSError as error:
        log.warning("encoder %s cannot be prepared, so %s is asked: %s", weights.name, weights.base, error)
        return onnx.opened(weights.untrained, None, threads)
    return encoder


def _read(weights: Weights) -> bytes:
    """The adapter that comes with us. Raises `ModelError` if it is not the one that is known, and `OSError`."""
    model = Path(adapters.__file__).with_name(weights.adapter).read_bytes()
    if (found := sha256(model).hexdigest()) != weights.adapter_sha256:
        raise ModelError(
            f"{weights.adapter} has sha256 {found}, expected {weights.adapter_sha256}; install foretool anew"
        )
    return model


def cache_folder() -> Path:
    """Where prepared models are kept when nobody says: 90 MB each."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "foretool" / "encoders"


def prepared(weights: Weights, model: bytes, cache: Path) -> Path:
    """The model with the changes in it, as onnxruntime has optimised it; made once per adapter, in a second. Raises
    `OSError` where there is no room for it."""
    adapter = adapters.loads(model)
    adapters.check(adapter, weights.sha256)
    path = locate(weights)
    if path is None:
        raise EncoderError(f"encoder {weights.name!r}: {weights.package or weights.file} is not there")
    folder = _folder(weights, model, cache)
    if (folder / "model.onnx").is_file():
        return folder / "model.onnx"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    if disk_usage(cache).free < ROOM * path.stat().st_size:
        raise OSError(ENOSPC, "no room to prepare an encoder", str(cache))
    made, apart = (cache / f"{folder.name}.{os.getpid()}{end}" for end in ("", ".apart"))
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


def _folder(weights: Weights, model: bytes, cache: Path) -> Path:
    """Another for each adapter and each version of onnxruntime."""
    import onnxruntime  # type: ignore[import-untyped]

    return cache / f"{weights.sha256[:16]}-{sha256(model).hexdigest()[:16]}-{onnxruntime.__version__}"


def prepared_apart(weights: Weights, model: bytes, cache: Path) -> Path:
    """As `prepared`, in a process of its own: making it takes 90 MB that would stay."""
    if not _folder(weights, model, cache).is_dir() and weights in BY_NAME:
        command = (sys.executable, "-m", __name__, weights.name, str(cache))
        run(command, input=model, capture_output=True, check=False)  # where it failed, it is tried here and says why
    return prepared(weights, model, cache)


class AdaptedEncoder:
    """See the module; either model is opened when it is first asked for."""

    def __init__(self, weights: Weights, model: bytes, cache: Path | None, threads: int = 2) -> None:
        self.weights = weights
        self._model, self._cache, self._threads = model, cache, threads
        self._queries: onnx.OnnxEncoder | None = None
        self._documents: onnx.OnnxEncoder | None = None

    @property
    def name(self) -> str:
        return self.weights.name

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Embed what tools are searched with, as it was trained."""
        return self.warm().queries(texts)

    def warm(self) -> onnx.OnnxEncoder:
        """Open the model for queries, now and not during a search."""
        if self._queries is None:
            self._queries = self._mapped()
        return self._queries

    def _mapped(self) -> onnx.OnnxEncoder:
        if self._cache is not None:
            try:
                return onnx.mapped(self.weights, prepared_apart(self.weights, self._model, self._cache), self._threads)
            except OSError as error:
                log.info("%s: %s", self._cache, error)
        # What is mapped stays, though its file is gone.
        with TemporaryDirectory(prefix="foretool-", ignore_cleanup_errors=True) as scratch:
            return onnx.mapped(self.weights, prepared_apart(self.weights, self._model, Path(scratch)), self._threads)

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed what is searched, as before training."""
        if self._documents is None:
            self._documents = onnx.opened(self.weights, self._cache, self._threads)
        return self._documents.documents(texts)


if __name__ == "__main__":
    (named,) = (each for each in BY_NAME if each.name == sys.argv[1])
    prepared(named, sys.stdin.buffer.read(), Path(sys.argv[2]))
