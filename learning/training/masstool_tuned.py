"""The first stage of MassTool: fine-tunes the encoder on the tasks on record before anything else is learned.

Only the paper's code says so: it fine-tunes all weights of each backbone by multiple-negatives ranking for 10 epochs.
Here thin matrices are trained beside the wide ones of MiniLM (`thin_encoder`), with the loss of the head: the
cross-entropy of golden sets, from the sentence vector alone. torch is imported when a function is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foretool.learning.training import TooLittle
from foretool.learning.training.thin_encoder import ThinEncoder, as_floats, draw_batches, rate_at, trainable_weights
from foretool.retrieval import encoders
from foretool.retrieval.model_format import Floats

LEAST: Final = 2_000
"""Fewest tasks that the encoder is fine-tuned on."""
_RANK: Final = 16
EPOCHS, BATCH, _RATE = 3, 64, 1e-3
_RATE_OF_HEAD: Final = 2e-2
_LOUD: Final = 3.0
"""Factor of the vectors during training, so that the head learns as fast as the encoder."""
_TOKENS: Final = 64
"""Tokens of a task; longer ones are cut, in training alone."""


def weights_to_tune(tasks: int) -> encoders.Weights | None:
    """Return the encoder to fine-tune; None with too few tasks, or if it or a library that trains it is not
    installed."""
    if tasks < LEAST:
        return None
    try:
        return trainable_weights()
    except TooLittle:
        return None


def tune(
    weights: encoders.Weights,
    texts: Sequence[str],
    targets: Callable[[NDArray[Any]], Floats],
    seed: int,
    progress: Callable[[float], None],
) -> dict[str, NDArray[Any]]:
    """Fine-tune the encoder on tasks, and fit a head on its vectors; repeatable for a seed.

    `targets` maps rows of the tasks to the shares of the classes that each should have, (rows, classes), each row
    adding up to 1. Returns the adapter of MiniLM as `adapters.loads` reads it, and the head as arrays of the model:
    `tuned_out` (dimension, classes) and `tuned_bias` (classes,).
    """
    torch: Any = import_module("torch")
    with TemporaryDirectory() as scratch:
        encoder = ThinEncoder(weights, Path(scratch), _RANK, seed)
        tokens = encoder.tokens([weights.prefix + text for text in texts], _TOKENS)
        batches = draw_batches([len(each) for each in tokens], BATCH, EPOCHS, seed)
        classes = targets(np.asarray([0])).shape[1]
        out = torch.zeros(encoder.dimension, classes, requires_grad=True)
        bias = torch.zeros(classes, requires_grad=True)
        optimizer = torch.optim.AdamW([
            {"params": encoder.parameters, "weight_decay": 0.01},
            {"params": [out, bias], "weight_decay": 0.0},
        ])  # fmt: skip
        encoder.model.train()
        for step, rows in enumerate(batches):
            for group, rate in zip(optimizer.param_groups, (_RATE, _RATE_OF_HEAD), strict=True):
                group["lr"] = rate_at(step, len(batches), rate)
            optimizer.zero_grad()
            logits = _LOUD * encoder.vectors([tokens[row] for row in rows]) @ out + bias
            torch.nn.functional.cross_entropy(logits, torch.from_numpy(targets(np.asarray(rows)))).backward()
            optimizer.step()
            progress((step + 1) / len(batches))
        adapter = encoder.adapter({"tasks": len(tokens), "rank": _RANK}).dumps()
    return {
        "tuned_adapter": np.frombuffer(adapter, np.uint8),
        "tuned_out": (np.float32(_LOUD) * as_floats(out)).astype(np.float16),
        "tuned_bias": as_floats(bias),
    }
