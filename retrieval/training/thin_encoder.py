"""Trains thin matrices beside the wide ones of an encoder; shared by PORTS and by the first stage of MassTool.

torch is imported when an encoder is opened.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from foretool.retrieval import encoders
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.encoders.onnx import cut, padded, tokenizer_of
from foretool.retrieval.model_format import Floats
from foretool.retrieval.training import TooLittle, low_rank

SORTED = 8
"""Batches among which the tasks are sorted by length, so that few tokens of a batch are padding."""


def trainable_weights() -> encoders.Weights:
    """Returns the encoder that is trained. Raises `TooLittle` if it, or a library that trains it, is not installed."""
    weights = encoders.MANIFEST[0].untrained
    missing = [name for name in ("torch", "sentence_transformers") if find_spec(name) is None]
    if missing:
        raise TooLittle(f"{', '.join(missing)} not installed; pip install 'foretool[train]'")
    if encoders.locate(weights) is None:
        raise TooLittle(f"encoder {weights.name!r} is not installed; {encoders.INSTALL}")
    return weights


class ThinEncoder:
    """An encoder in torch of which only the thin matrices are trained."""

    def __init__(self, weights: encoders.Weights, folder: Path, rank: int, seed: int, *, half: bool = True) -> None:
        """`folder`: where the weights are laid out; `half`: whether products are taken in bfloat16."""
        self._torch: Any = import_module("torch")
        self._torch.manual_seed(seed)
        self.weights = weights
        self.model, self._names = low_rank.open_model(weights, folder)
        self.thin = low_rank.make_thin(self.model, rank, seed)
        self._tokenizer: Any = tokenizer_of(Path(weights.file).parent if not weights.package else None)
        self._half = half

    @property
    def dimension(self) -> int:
        found: int = self.model.get_embedding_dimension()
        return found

    @property
    def parameters(self) -> list[Any]:
        """The tensors that are trained."""
        return [each for part in self.thin.values() for each in (part.left, part.right)]

    def tokens(self, texts: Sequence[str], limit: int) -> list[list[int]]:
        """The tokens of each text, at most `limit` of them."""
        return [cut(self._tokenizer.encode(text[: limit * 12]).ids, limit) for text in texts]

    def vectors(self, tokens: Sequence[Sequence[int]]) -> Any:
        """(texts, dimension) of length 1, as a tensor that carries gradients."""
        torch = self._torch
        ids, mask = map(torch.from_numpy, padded(tokens))
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        with torch.autocast("cpu", torch.bfloat16, enabled=self._half):
            return self.model(fed)["sentence_embedding"].float()

    def embed(self, tokens: Sequence[Sequence[int]], batch: int = 64) -> Floats:
        """(texts, dimension) without gradients."""
        found = np.zeros((len(tokens), self.dimension), np.float32)
        order = sorted(range(len(tokens)), key=lambda at: len(tokens[at]))
        with self._torch.inference_mode():
            for start in range(0, len(order), batch):
                part = order[start : start + batch]
                found[part] = low_rank.as_floats(self.vectors([tokens[at] for at in part]))
        return found

    def adapter(self, report: Mapping[str, Any]) -> Adapter:
        """The thin matrices as an adapter of the encoder's file."""
        return low_rank.export_adapter(self.weights, self.thin, self._names, report)

    def continue_from(self, start: Adapter) -> None:
        """Loads what an earlier training left, which must have the same rank."""
        low_rank.load_adapter(self.thin, self._names, start)


def draw_batches(lengths: Sequence[int], batch: int, epochs: int, seed: int) -> list[list[int]]:
    """Draws which examples make up each step, over all epochs. `lengths`: tokens of each example."""
    draw = random.Random(seed)  # noqa: S311 (an order, not a secret)
    found: list[list[int]] = []
    for _ in range(epochs):
        order = list(range(len(lengths)))
        draw.shuffle(order)
        epoch: list[list[int]] = []
        for start in range(0, len(order), SORTED * batch):
            part = sorted(order[start : start + SORTED * batch], key=lambda at: lengths[at])
            epoch += [part[at : at + batch] for at in range(0, len(part), batch)]
        draw.shuffle(epoch)
        found += epoch
    return found


def rate_at(step: int, total: int, rate: float, warm: float = 0.05) -> float:
    """The learning rate of a step: it rises in a straight line, then falls along a cosine."""
    rising = max(int(total * warm), 1)
    if step < rising:
        return rate * (step + 1) / rising
    return float(rate * 0.5 * (1.0 + np.cos(np.pi * (step - rising) / max(total - rising, 1))))
