"""The first stage of MassTool: the encoder, fine-tuned on the tasks on record before anything else is learnt.

The paper says it in its code alone: each backbone is fine-tuned on the set, all weights, by multiple-negatives ranking,
for 10 epochs. Here thin matrices are learnt beside the wide ones of MiniLM (`low_rank`), by what the head learns, too:
the cross-entropy of golden sets, from the sentence vector alone. torch is imported when a function is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from msgspec import Struct

from foretool.retrieval import encoders
from foretool.retrieval.encoders.onnx import cut, padded, tokenizer_of
from foretool.retrieval.model_format import Floats
from foretool.retrieval.training import TooLittle, low_rank
from foretool.retrieval.training.ports import Plan, rate_at, steps, trainable

LEAST: Final = 2_000
"""Tasks."""
RANK: Final = 16
EPOCHS, BATCH, RATE = 3, 64, 1e-3
RATE_OF_HEAD: Final = 2e-2
LOUD: Final = 3.0
"""What vectors are multiplied by while learning, so that the head learns as fast as the encoder."""
TOKENS: Final = 64
"""Of a task; longer ones are cut, in training alone."""


class Tuned(Struct, frozen=True):
    """What was learnt."""

    adapter: bytes
    """Of MiniLM, as `adapters.loads` reads it."""
    out: Floats
    """(dimension, classes): from the fine-tuned encoder's vector to logits."""
    bias: Floats
    """(classes,)"""


def weights_to_tune(tasks: int) -> encoders.Weights | None:
    """The encoder that is fine-tuned; None with too few tasks, or where it or what trains it is not installed."""
    if tasks < LEAST:
        return None
    try:
        return trainable()
    except TooLittle:
        return None


def tuned(
    weights: encoders.Weights,
    texts: Sequence[str],
    targets: Callable[[np.ndarray[Any, Any]], Floats],
    seed: int,
    told: Callable[[float], None],
) -> Tuned:
    """`targets`: rows of the tasks to what they should be, (rows, classes), each together 1. Repeatable for a seed."""
    with TemporaryDirectory() as scratch:
        return _Tuning(weights, texts, targets, seed, Path(scratch)).run(told)


class _Tuning:
    """The encoder with its thin matrices, the head on it, and the loop."""

    def __init__(
        self,
        weights: encoders.Weights,
        texts: Sequence[str],
        targets: Callable[[np.ndarray[Any, Any]], Floats],
        seed: int,
        folder: Path,
    ) -> None:
        torch = self.torch = import_module("torch")
        torch.manual_seed(seed)
        self.weights, self.targets = weights, targets
        self.model, self.names = low_rank.opened(weights, folder)
        self.thin = low_rank.make_thin(self.model, RANK, seed)
        tokenizer = tokenizer_of(Path(weights.file).parent if not weights.package else None)
        self.tokens = [cut(tokenizer.encode(weights.prefix + text[: TOKENS * 12]).ids, TOKENS) for text in texts]
        self.plan = steps([len(each) for each in self.tokens], Plan(batch=BATCH, epochs=EPOCHS, seed=seed))
        classes = targets(np.asarray([0])).shape[1]
        self.out = torch.zeros(self.model.get_embedding_dimension(), classes, requires_grad=True)
        self.bias = torch.zeros(classes, requires_grad=True)

    def run(self, told: Callable[[float], None]) -> Tuned:
        thin = [each for part in self.thin.values() for each in (part.left, part.right)]
        optimizer = self.torch.optim.AdamW([
            {"params": thin, "weight_decay": 0.01},
            {"params": [self.out, self.bias], "weight_decay": 0.0},
        ])  # fmt: skip
        self.model.train()
        for step, rows in enumerate(self.plan):
            for group, rate in zip(optimizer.param_groups, (RATE, RATE_OF_HEAD), strict=True):
                group["lr"] = rate_at(step, len(self.plan), rate)
            optimizer.zero_grad()
            self._loss(rows).backward()
            optimizer.step()
            told((step + 1) / len(self.plan))
        adapter = low_rank.adapter(self.weights, self.thin, self.names, {"tasks": len(self.tokens), "rank": RANK})
        out = np.float32(LOUD) * low_rank.as_floats(self.out)
        return Tuned(adapter.dumps(), out, low_rank.as_floats(self.bias))

    def _loss(self, rows: Sequence[int]) -> Any:
        torch = self.torch
        ids, mask = map(torch.from_numpy, padded([self.tokens[row] for row in rows]))
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        with torch.autocast("cpu", torch.bfloat16):
            vectors = self.model(fed)["sentence_embedding"].float()
        wanted = torch.from_numpy(self.targets(np.asarray(rows)))
        return torch.nn.functional.cross_entropy(LOUD * vectors @ self.out + self.bias, wanted)
