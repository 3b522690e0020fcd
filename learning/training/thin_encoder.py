"""Trains thin matrices beside the wide ones of an encoder (LoRA); shared by PORTS and by the first stage of MassTool.

The weights are those that serve: they are read from the same ONNX file (`retrieval.adapters`), written to a
sentence-transformers folder, and opened from there. torch is imported when a function is called.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from foretool.learning.training import TooLittle
from foretool.retrieval import adapters, encoders
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.encoders.onnx import cut, padded, tokenizer_of
from foretool.retrieval.model_format import Floats

_SORTED = 8
"""Batches among which the tasks are sorted by length, so that few tokens of a batch are padding."""
_HEADS = 12
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
_PREFIX = "inner."
"""What the ONNX exporter put before the names of parameters."""


class NotTrainable(Exception):
    """This model cannot be trained here; the message says why, and which model can."""


def match_matrices(matrices: Mapping[str, Floats]) -> dict[str, str]:
    """Return the name in the ONNX file of every wide matrix, by its name in BERT. Raises `NotTrainable`.

    The exporter numbered the matrices in the order in which they are used.
    """
    numbered = sorted(
        (name for name in matrices if name.startswith("val_") and matrices[name].ndim == 2),
        key=lambda name: int(name[4:]),
    )
    layers = {name.split(".")[3] for name in matrices if name.startswith(f"{_PREFIX}encoder.layer.")}
    found = {f"encoder.layer.{at // len(LAYER)}.{LAYER[at % len(LAYER)]}": name for at, name in enumerate(numbered)}
    wrong = [
        name
        for module, name in found.items()
        if (bias := matrices.get(f"{_PREFIX}{module}.bias")) is None or bias.shape != matrices[name].shape[1:]
    ]
    if not found or wrong or len(found) != len(layers) * len(LAYER):
        raise NotTrainable(
            f"{len(numbered)} matrices in {len(layers)} layers: not the BERT that is known here; use minilm"
        )
    return found


def trainable_weights() -> encoders.Weights:
    """Return the encoder that is trained. Raises `TooLittle` if it, or a library that trains it, is not installed."""
    weights = encoders.MANIFEST[0].untrained
    missing = [name for name in ("torch", "sentence_transformers") if find_spec(name) is None]
    if missing:
        raise TooLittle(f"{', '.join(missing)} not installed; pip install 'foretool[train]'")
    if encoders.locate(weights) is None:
        raise TooLittle(f"encoder {weights.name!r} is not installed; {encoders.INSTALL}")
    return weights


def write_folder(weights: encoders.Weights, folder: Path) -> dict[str, str]:
    """Write the model as sentence-transformers reads it; return `match_matrices`. Raises `NotTrainable`."""
    torch = import_module("torch")
    from transformers import BertConfig, BertModel  # type: ignore[import-not-found]

    path = encoders.locate(weights)
    if path is None:
        raise NotTrainable(f"encoder {weights.name!r}: {weights.package or weights.file} is not there")
    numbers = adapters.matrices(path.read_bytes())
    names = match_matrices(numbers)
    words = numbers[f"{_PREFIX}embeddings.word_embeddings.weight"]
    places = numbers[f"{_PREFIX}embeddings.position_embeddings.weight"]
    config = BertConfig(
        vocab_size=words.shape[0],
        hidden_size=words.shape[1],
        num_hidden_layers=len(names) // len(LAYER),
        num_attention_heads=_HEADS,
        intermediate_size=numbers[names["encoder.layer.0.intermediate.dense"]].shape[1],
        max_position_embeddings=places.shape[0],
    )
    state = {
        name.removeprefix(_PREFIX): torch.from_numpy(rows) for name, rows in numbers.items() if name.startswith(_PREFIX)
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
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )
    return names


def open_student(weights: encoders.Weights, folder: Path) -> tuple[Any, dict[str, str]]:
    """Open a `SentenceTransformer` with these weights, and return it with the result of `match_matrices`.

    A model of sentence-transformers' own is opened by its id and has no matches.
    """
    from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found]
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer  # type: ignore[import-not-found]

    if weights.kind == "sentence-transformers":
        return SentenceTransformer(weights.name, device="cpu"), {}
    names = write_folder(weights, folder)
    # In bfloat16 the gradient of torch's fused attention takes three times as long as everything else.
    plain = {"attn_implementation": "eager"}
    body = Transformer(str(folder), max_seq_length=weights.query_tokens, model_kwargs=plain)
    pooling = Pooling(body.get_embedding_dimension(), "cls" if weights.pooling == "first" else "mean")
    return SentenceTransformer(modules=[body, pooling, Normalize()], device="cpu"), names


def make_thin(model: Any, rank: int, seed: int) -> dict[str, Any]:
    """Freeze all weights, and add to every wide matrix a pair of thin trainable ones (LoRA), whose product is 0 at
    first. Returns the wrapped modules by their name in BERT."""
    torch = import_module("torch")
    draw = torch.Generator().manual_seed(seed)
    base: Any = torch.nn.Module

    class Thin(base):  # type: ignore[misc]
        """Computes W x + (x A) B."""

        def __init__(self, part: Any) -> None:
            super().__init__()
            self.whole = part
            self.left = torch.nn.Parameter(torch.randn(part.in_features, rank, generator=draw) / part.in_features**0.5)
            self.right = torch.nn.Parameter(torch.zeros(rank, part.out_features))

        def forward(self, states: Any) -> Any:
            return self.whole(states) + (states @ self.left) @ self.right

    for parameter in model.parameters():
        parameter.requires_grad_(False)
    body = model[0].auto_model
    wide = [
        (name, part)
        for name, part in body.named_modules()
        if name.startswith("encoder.") and isinstance(part, torch.nn.Linear)
    ]
    found = {name: Thin(part) for name, part in wide}
    for name, thin in found.items():
        parent, _, own = name.rpartition(".")
        setattr(body.get_submodule(parent), own, thin)
    return found


def has_bfloat16() -> bool:
    """Return whether this processor multiplies in bfloat16 itself; others convert every number, which is slower."""
    torch: Any = import_module("torch")
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class ThinEncoder:
    """An encoder in torch of which only the thin matrices are trained."""

    def __init__(self, weights: encoders.Weights, folder: Path, rank: int, seed: int, *, half: bool = True) -> None:
        """`folder`: where the weights are laid out; `half`: whether products are taken in bfloat16
        where the processor has it."""
        self._torch: Any = import_module("torch")
        self._torch.manual_seed(seed)
        self.weights = weights
        self.model, self._names = open_student(weights, folder)
        self.dimension: int = self.model.get_embedding_dimension()
        self.thin = make_thin(self.model, rank, seed)
        self._tokens_of = tokenizer_of(Path(weights.file).parent if not weights.package else None)
        self._half = half and has_bfloat16()

    @property
    def parameters(self) -> list[Any]:
        """The tensors that are trained."""
        return [each for part in self.thin.values() for each in (part.left, part.right)]

    def tokens(self, texts: Sequence[str], limit: int) -> list[list[int]]:
        """Return the tokens of each text, at most `limit` of them."""
        return [cut(self._tokens_of(text[: limit * 12]), limit) for text in texts]

    def vectors(self, tokens: Sequence[Sequence[int]]) -> Any:
        """Return vectors of length 1, (texts, dimension), as a tensor that carries gradients."""
        torch = self._torch
        ids, mask = map(torch.from_numpy, padded(tokens))
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        with torch.autocast("cpu", torch.bfloat16, enabled=self._half):
            return self.model(fed)["sentence_embedding"].float()

    def embed(self, tokens: Sequence[Sequence[int]], batch: int = 64) -> Floats:
        """Return vectors (texts, dimension) without gradients."""
        found = np.zeros((len(tokens), self.dimension), np.float32)
        order = sorted(range(len(tokens)), key=lambda at: len(tokens[at]))
        with self._torch.inference_mode():
            for start in range(0, len(order), batch):
                part = order[start : start + batch]
                found[part] = as_floats(self.vectors([tokens[at] for at in part]))
        return found

    def adapter(self, report: Mapping[str, Any]) -> Adapter:
        """Return the thin matrices as an adapter of the file that they were trained on."""
        changes = {
            self._names[module]: (part.left.detach().numpy().copy(), part.right.detach().numpy().copy())
            for module, part in self.thin.items()
        }
        return Adapter(self.weights.sha256, changes, report)

    def continue_from(self, start: Adapter) -> None:
        """Load what an earlier training left. Raises `NotTrainable` if it has another shape."""
        for module, part in self.thin.items():
            left, right = start.changes[self._names[module]]
            if left.shape != part.left.shape:
                raise NotTrainable(f"{module}: {left.shape} was trained, {tuple(part.left.shape)} is asked for")
            part.left.data.copy_(self._torch.from_numpy(left))
            part.right.data.copy_(self._torch.from_numpy(right))


def as_floats(rows: Any) -> Floats:
    found: Floats = np.asarray(rows.detach().float().numpy(), np.float32)
    return found


def draw_batches(lengths: Sequence[int], batch: int, epochs: int, seed: int) -> list[list[int]]:
    """Draw which examples make up each step, over all epochs. `lengths`: tokens of each example."""
    draw = random.Random(seed)  # noqa: S311 (an order, not a secret)
    found: list[list[int]] = []
    for _ in range(epochs):
        order = list(range(len(lengths)))
        draw.shuffle(order)
        epoch: list[list[int]] = []
        for start in range(0, len(order), _SORTED * batch):
            part = sorted(order[start : start + _SORTED * batch], key=lambda at: lengths[at])
            epoch += [part[at : at + batch] for at in range(0, len(part), batch)]
        draw.shuffle(epoch)
        found += epoch
    return found


def rate_at(step: int, total: int, rate: float, warm: float = 0.05) -> float:
    """Return the learning rate of a step: it rises in a straight line, then falls along a cosine."""
    rising = max(int(total * warm), 1)
    if step < rising:
        return rate * (step + 1) / rising
    return float(rate * 0.5 * (1.0 + np.cos(np.pi * (step - rising) / max(total - rising, 1))))
