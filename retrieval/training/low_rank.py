"""An encoder in torch whose wide matrices stay as they are and get thin ones beside them (LoRA), and the way back.

The weights are those that serving runs: they are read out of the same ONNX file (`retrieval.adapters`), written down as
a sentence-transformers folder and opened from there. What is trained is exported as an adapter of that file; a model
that came from elsewhere is exported whole. torch is imported when a function is called.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from foretool.retrieval import adapters
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.encoders import Weights, locate
from foretool.retrieval.model_format import Floats

HEADS = 12
"""Of MiniLM; the numbers do not tell."""
LAYER = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
"""The wide matrices of a layer of BERT, in the order in which they are used."""
NAMES = "matrices.json"
"""What `wide` found, in the folder that is written."""
PREFIX = "inner."
"""What the exporter put before the names it knew."""


class NotTrainable(Exception):
    """This model cannot be trained here; says why, and which can."""


def wide(matrices: Mapping[str, Floats]) -> dict[str, str]:
    """The name in the ONNX file of every wide matrix, by its name in BERT. The exporter numbered them in the order of
    use. Raises `NotTrainable`."""
    numbered = sorted(
        (name for name in matrices if name.startswith("val_") and matrices[name].ndim == 2),
        key=lambda name: int(name[4:]),
    )
    layers = {name.split(".")[3] for name in matrices if name.startswith(f"{PREFIX}encoder.layer.")}
    found = {f"encoder.layer.{at // len(LAYER)}.{LAYER[at % len(LAYER)]}": name for at, name in enumerate(numbered)}
    wrong = [
        name
        for module, name in found.items()
        if (bias := matrices.get(f"{PREFIX}{module}.bias")) is None or bias.shape != matrices[name].shape[1:]
    ]
    if not found or wrong or len(found) != len(layers) * len(LAYER):
        raise NotTrainable(
            f"{len(numbered)} matrices in {len(layers)} layers: not the BERT that is known here; use minilm"
        )
    return found


def write_folder(weights: Weights, folder: Path) -> dict[str, str]:
    """The model as sentence-transformers reads it; returns `wide`. Raises `NotTrainable`."""
    torch = import_module("torch")
    from transformers import BertConfig, BertModel  # type: ignore[import-not-found]

    if (folder / NAMES).is_file():
        names: dict[str, str] = json.loads((folder / NAMES).read_text("utf-8"))
        return names
    path = locate(weights)
    if path is None:
        raise NotTrainable(f"encoder {weights.name!r}: {weights.package or weights.file} is not there")
    with TemporaryDirectory() as scratch:
        numbers = {
            name: rows.copy() for name, rows in adapters.matrices(adapters.take_apart(path, Path(scratch))).items()
        }
    names = wide(numbers)
    words = numbers[f"{PREFIX}embeddings.word_embeddings.weight"]
    places = numbers[f"{PREFIX}embeddings.position_embeddings.weight"]
    config = BertConfig(
        vocab_size=words.shape[0],
        hidden_size=words.shape[1],
        num_hidden_layers=len(names) // len(LAYER),
        num_attention_heads=HEADS,
        intermediate_size=numbers[names["encoder.layer.0.intermediate.dense"]].shape[1],
        max_position_embeddings=places.shape[0],
    )
    state = {
        name.removeprefix(PREFIX): torch.from_numpy(rows) for name, rows in numbers.items() if name.startswith(PREFIX)
    }
    # ONNX multiplies from the right, torch keeps what it multiplies with from the left.
    state |= {f"{module}.weight": torch.from_numpy(numbers[name].T.copy()) for module, name in names.items()}
    model = BertModel(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or [name for name in missing if not name.endswith("position_ids") and not name.startswith("pooler.")]:
        raise NotTrainable(f"encoder {weights.name!r}: {missing or unexpected} do not fit")
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    vocabulary = Path(adapters.__file__).with_name("bert_vocab.txt")
    (folder / "vocab.txt").write_text(vocabulary.read_text("utf-8"), "utf-8")
    (folder / NAMES).write_text(json.dumps(names), "utf-8")  # last: the folder is whole
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )
    return names


def opened(weights: Weights, folder: Path) -> tuple[Any, dict[str, str]]:
    """A `SentenceTransformer` with these weights, and the name in the ONNX file of every wide matrix. `folder` is
    written to once. A model of sentence-transformers' own is opened by its id and has no names."""
    from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found]
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer  # type: ignore[import-not-found]

    if weights.kind == "sentence-transformers":
        return SentenceTransformer(weights.name, device="cpu"), {}
    names = write_folder(weights, folder)
    body = Transformer(str(folder), max_seq_length=weights.query_tokens)
    pooling = Pooling(body.get_embedding_dimension(), "cls" if weights.pooling == "first" else "mean")
    return SentenceTransformer(modules=[body, pooling, Normalize()], device="cpu"), names


def make_thin(model: Any, rank: int, seed: int) -> dict[str, Any]:
    """Freeze everything and put a pair of thin matrices beside every wide one of the layers. Returns the wrapped
    modules by their name in BERT; the pairs begin as no change."""
    torch = import_module("torch")

    draw = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    body = model[0].auto_model
    found = {name: part for name, part in _linear(body) if name.startswith("encoder.")}
    for name, part in found.items():
        parent, _, own = name.rpartition(".")
        found[name] = _thin(part, rank, draw)
        setattr(body.get_submodule(parent), own, found[name])
    return found


def _linear(body: Any) -> Iterator[tuple[str, Any]]:
    torch = import_module("torch")

    yield from ((name, part) for name, part in list(body.named_modules()) if isinstance(part, torch.nn.Linear))


def _thin(part: Any, rank: int, draw: Any) -> Any:
    torch = import_module("torch")

    base: Any = torch.nn.Module

    class Thin(base):  # type: ignore[misc]
        """W x + (x A) B."""

        def __init__(self) -> None:
            super().__init__()
            self.whole = part
            self.left = torch.nn.Parameter(torch.randn(part.in_features, rank, generator=draw) / part.in_features**0.5)
            self.right = torch.nn.Parameter(torch.zeros(rank, part.out_features))

        def forward(self, states: Any) -> Any:
            return self.whole(states) + (states @ self.left) @ self.right

    return Thin()


def adapter(weights: Weights, thin: Mapping[str, Any], names: Mapping[str, str], report: Mapping[str, Any]) -> Adapter:
    """What was trained, for the file it was trained on."""
    changes = {
        names[module]: (part.left.detach().numpy().copy(), part.right.detach().numpy().copy())
        for module, part in thin.items()
    }
    return Adapter(weights.sha256, changes, report)


def load(thin: Mapping[str, Any], names: Mapping[str, str], trained: Adapter) -> None:
    """Go on from what was trained before. Raises `NotTrainable` where it has another shape."""
    torch = import_module("torch")

    for module, part in thin.items():
        left, right = trained.changes[names[module]]
        if left.shape != part.left.shape:
            raise NotTrainable(f"{module}: {left.shape} was trained, {tuple(part.left.shape)} is asked for")
        part.left.data.copy_(torch.from_numpy(left))
        part.right.data.copy_(torch.from_numpy(right))


def merge(thin: Mapping[str, Any]) -> None:
    """Add the thin matrices to the wide ones, for an export of the whole; the pairs are zero afterwards."""
    torch = import_module("torch")

    with torch.no_grad():
        for part in thin.values():
            part.whole.weight += (part.left @ part.right).T
            part.right.zero_()


def without_thin(model: Any) -> Any:
    """The same model with its wide matrices alone; what the thin ones hold is lost unless `merge` came first."""
    body = model[0].auto_model
    for name, part in list(body.named_modules()):
        if hasattr(part, "whole"):
            parent, _, own = name.rpartition(".")
            setattr(body.get_submodule(parent), own, part.whole)
    return model


def export_whole(model: Any, folder: Path) -> Path:
    """`model.onnx` with the tokenizer and the pooling beside it, as the setting `encoder` opens a folder."""
    torch = import_module("torch")

    model.save(str(folder))
    body = model[0].auto_model.eval()
    names = ("input_ids", "attention_mask", "token_type_ids")

    base: Any = torch.nn.Module

    class States(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = body

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.inner(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            ).last_hidden_state

    one = torch.ones(2, 8, dtype=torch.long)
    axes = {name: {0: "batch", 1: "tokens"} for name in (*names, "last_hidden_state")}
    with warnings.catch_warnings():
        # It is the older exporter, and says so; the newer one needs one package more and writes the same model.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            States(), (one, one, torch.zeros_like(one)), str(folder / "model.onnx"), input_names=list(names),
            output_names=["last_hidden_state"], dynamic_axes=axes, opset_version=17, dynamo=False,
        )  # fmt: skip
    return folder


def as_floats(rows: Any) -> Floats:
    """A tensor as float32 of numpy."""
    found: Floats = np.asarray(rows.detach().float().numpy(), np.float32)
    return found
