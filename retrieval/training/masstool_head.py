"""Fits a head of MassTool: softmax over the classes of golden sets, from the words and the vector of a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from foretool.retrieval.model_format import Floats
from foretool.retrieval.rankers.masstool import Ints
from foretool.retrieval.score_sum import softmax
from foretool.retrieval.training.adam import Adam, RowAdam
from foretool.retrieval.training.masstool_tasks import Classes, Tasks, take_rows

SIZE: Final = 128
"""Numbers that the words of a task are reduced to."""
EPOCHS, EPOCHS_OF_WORDS = 4, 10
"""With sentence vectors, and by words alone."""
BATCH, RATE = 128, 1e-2
STEPS: Final = 200
"""Fewest steps."""
FORGOTTEN: Final = 0.3
"""Share of a task's grams that a step leaves out."""
LOUD: Final = 3.0
"""Factor of the sentence vectors during training, so that they learn as fast as the words."""


class Adams(NamedTuple):
    """The optimizers of the arrays of a head."""

    rows: RowAdam
    out: Adam
    bias: Adam


class Head(Struct, frozen=True):
    """A head, as `rankers.masstool.Net` before its rows are rounded."""

    rows: Floats
    out: Floats
    bias: Floats


def fit_head(tasks: Tasks, known: Classes, rows: Ints, seed: int, progress: Callable[[float], None]) -> Head:
    """Fits a head for these rows of the tasks by cross-entropy and Adam with a falling rate.

    A seed gives the same head on the same machine.
    """
    draw = np.random.default_rng(seed)
    size = tasks.vectors.shape[1]
    head = Head(
        rows=draw.normal(0.0, SIZE**-0.5, (int(tasks.words.columns.max(initial=0)) + 1, SIZE)).astype(np.float32),
        out=np.zeros((SIZE + size, len(known.sets)), np.float32),
        bias=np.zeros(len(known.sets), np.float32),
    )
    head.out[:SIZE] = draw.uniform(-1.0, 1.0, (SIZE, len(known.sets))) * SIZE**-0.5
    adams = Adams(RowAdam(head.rows), Adam(head.out), Adam(head.bias))
    batch = min(BATCH, len(rows))
    each_epoch = len(rows) // batch
    epochs = max(EPOCHS if size else EPOCHS_OF_WORDS, -(-STEPS // each_epoch))
    for epoch in range(epochs):
        order = rows[draw.permutation(len(rows))]
        for place in range(each_epoch):
            done = (epoch * each_epoch + place) / (epochs * each_epoch)
            _step(tasks, known, order[place * batch : (place + 1) * batch], head, adams, max(0.02, 1.0 - done), draw)
        progress((epoch + 1) / epochs)
    return head


def _step(
    tasks: Tasks,
    known: Classes,
    rows: Ints,
    head: Head,
    adams: Adams,
    share: float,
    draw: np.random.Generator,
) -> None:
    """Takes one step on a batch; the inputs are (batch, SIZE + dimension), the words' numbers first."""

    def kept(count: int) -> Floats:
        return (draw.random(count) >= FORGOTTEN).astype(np.float32) / np.float32(1.0 - FORGOTTEN)

    used, words = take_rows(tasks.words, rows, kept)
    inputs = np.concatenate([words @ head.rows[used], np.float32(LOUD) * tasks.vectors[rows]], axis=1)
    gradient: Floats = softmax(inputs @ head.out + head.bias) - known.of(rows)
    gradient /= np.float32(len(rows))
    back: Floats = words.T @ (gradient @ head.out[:SIZE].T)
    adams.rows.step(used, back, share * RATE)
    adams.out.step(inputs.T @ gradient, share * RATE)
    adams.bias.step(gradient.sum(0, dtype=np.float32), share * RATE)


def class_shares(heads: Sequence[Head], tasks: Tasks, rows: Ints) -> Floats:
    """The share of each class, (rows, classes), by the mean of the heads' logits."""
    found = []
    for start in range(0, len(rows), 256):
        part = rows[start : start + 256]
        used, words = take_rows(tasks.words, part)
        vectors = np.float32(LOUD) * tasks.vectors[part]
        said = []
        for head in heads:
            inputs = np.concatenate([words @ head.rows[used], vectors[:, : len(head.out) - SIZE]], axis=1)
            said.append(inputs @ head.out + head.bias)
        found.append(softmax(np.mean(said, axis=0, dtype=np.float32)))
    return np.concatenate(found)
