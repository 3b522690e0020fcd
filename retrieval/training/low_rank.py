"""Opens an encoder in torch, puts thin matrices beside its wide ones (LoRA), and exports those as an adapter.

The weights are those that serve: they are read from the same ONNX file (`retrieval.adapters`), written to a
sentence-transformers folder, and opened from there. torch is imported when a function is called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from foretool.retrieval import adapters
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.encoders import Weights, locate
from foretool.retrieval.encoders.onnx import optimise
from foretool.retrieval.model_format import Floats

HEADS = 12
"""Attention heads of MiniLM, which its matrices do not tell."""
LAYER = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
"""The wide matrices of one layer of BERT, in the order in which they are used."""
NAMES = "matrices.json"
"""The file in the written folder that holds the result of `match_matrices`."""
PREFIX = "inner."
"""What the ONNX exporter put before the names of parameters."""


class NotTrainable(Exception):
    """This model cannot be trained here; the message says why, and which model can."""


def match_matrices(matrices: Mapping[str, Floats]) -> dict[str, str]:
    """Returns the name in the ONNX file of every wide matrix, by its name in BERT. Raises `NotTrainable`.

    The exporter numbered the matrices in the order in which they are used.
    """
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
    """Writes the model as sentence-transformers reads it; returns `match_matrices`. Raises `NotTrainable`."""
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
            name: rows.copy() for name, rows in adapters.matrices(optimise(path, Path(scratch), "ENABLE_BASIC")).items()
        }
    names = match_matrices(numbers)
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
    # A torch linear layer holds the transpose of the matrix that ONNX multiplies with.
    state |= {f"{module}.weight": torch.from_numpy(numbers[name].T.copy()) for module, name in names.items()}
    model = BertModel(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or [name for name in missing if not name.endswith("position_ids") and not name.startswith("pooler.")]:
        raise NotTrainable(f"encoder {weights.name!r}: {missing or unexpected} do not fit")
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    vocabulary = Path(adapters.__file__).with_name("bert_vocab.txt")
    (folder / "vocab.txt").write_text(vocabulary.read_text("utf-8"), "utf-8")
    (folder / NAMES).write_text(json.dumps(names), "utf-8")  # written last: the folder is complete
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )
    return names


def open_model(weights: Weights, folder: Path) -> tuple[Any, dict[str, str]]:
    """Opens a `SentenceTransformer` with these weights, and returns it with the result of `match_matrices`.

    `folder` is written once. A model of sentence-transformers' own is opened by its id and has no matches.
    """
    from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found]
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer  # type: ignore[import-not-found]

    if weights.kind == "sentence-transformers":
        return SentenceTransformer(weights.name, device="cpu"), {}
    names = write_folder(weights, folder)
    body = Transformer(str(folder), max_seq_length=weights.query_tokens)
    pooling = Pooling(body.get_embedding_dimension(), "cls" if weights.pooling == "first" else "mean")
    return SentenceTransformer(modules=[body, pooling, Normalize()], device="cpu"), names


def make_thin(model: Any, rank: int, seed: int) -> dict[str, Any]:
    """Freezes all weights and puts a pair of thin matrices, which change nothing yet, beside every wide one.

    Returns the wrapped modules by their name in BERT.
    """
    torch = import_module("torch")

    draw = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    body = model[0].auto_model
    found = {
        name: part
        for name, part in body.named_modules()
        if name.startswith("encoder.") and isinstance(part, torch.nn.Linear)
    }
    for name, part in found.items():
        parent, _, own = name.rpartition(".")
        found[name] = _wrap(part, rank, draw)
        setattr(body.get_submodule(parent), own, found[name])
    return found


def _wrap(part: Any, rank: int, draw: Any) -> Any:
    torch = import_module("torch")

    base: Any = torch.nn.Module

    class Thin(base):  # type: ignore[misc]
        """Computes W x + (x A) B."""

        def __init__(self) -> None:
            super().__init__()
            self.whole = part
            self.left = torch.nn.Parameter(torch.randn(part.in_features, rank, generator=draw) / part.in_features**0.5)
            self.right = torch.nn.Parameter(torch.zeros(rank, part.out_features))

        def forward(self, states: Any) -> Any:
            return self.whole(states) + (states @ self.left) @ self.right

    return Thin()


def export_adapter(
    weights: Weights, thin: Mapping[str, Any], names: Mapping[str, str], report: Mapping[str, Any]
) -> Adapter:
    """Exports the thin matrices as an adapter of the file that they were trained on."""
    changes = {
        names[module]: (part.left.detach().numpy().copy(), part.right.detach().numpy().copy())
        for module, part in thin.items()
    }
    return Adapter(weights.sha256, changes, report)


def load_adapter(thin: Mapping[str, Any], names: Mapping[str, str], trained: Adapter) -> None:
    """Continues from what was trained before. Raises `NotTrainable` if it has another shape."""
    torch = import_module("torch")

    for module, part in thin.items():
        left, right = trained.changes[names[module]]
        if left.shape != part.left.shape:
            raise NotTrainable(f"{module}: {left.shape} was trained, {tuple(part.left.shape)} is asked for")
        part.left.data.copy_(torch.from_numpy(left))
        part.right.data.copy_(torch.from_numpy(right))


def as_floats(rows: Any) -> Floats:
    """Converts a tensor to a numpy array of float32."""
    found: Floats = np.asarray(rows.detach().float().numpy(), np.float32)
    return found
