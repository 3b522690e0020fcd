"""Fits the small networks of DTDR as it is served: [query vector ; history] -> one hidden layer -> the next tool.

AdamW runs in numpy and in place: a few thousand demonstrations take a minute or two on one core. A batch updates only
the rows of the history's weights that it has, so a catalog of thousands of tools costs no more than the used ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.learning.rankers.dtdr_model import Network
from foretool.learning.training.optimizers import Adam, RowAdam
from foretool.retrieval.model_format import Floats
from foretool.retrieval.score_sum import softmax

Ints = NDArray[np.int64]
NONE = -1
Draw = np.random.Generator


class NetworkPlan(Struct, frozen=True):
    hidden: int = 512
    epochs: int = 40
    batch: int = 128
    rate: float = 2e-3
    """The rate at the start; it falls to 0 along a cosine."""
    decay: float = 1e-2
    """Decay of the matrices, per unit of rate (AdamW)."""
    dropout: float = 0.3
    """Of the hidden units."""
    blur: float = 0.1
    """Dropout of the entries of the query's vector."""
    unasked: float = 0.0
    """Share of the samples that lose their query, so that history alone works too."""


class Samples(Struct, frozen=True):
    tasks: Ints
    """Row of the task's vector, -1 for none."""
    rows: Ints
    """(samples, most): rows of the history's weights, filled up with the number of rows."""
    targets: Ints
    """(samples, most): the acceptable classes, which share the probability evenly, filled up with `NONE`."""

    def __len__(self) -> int:
        return len(self.tasks)


def fit_network(
    vectors: Floats,
    history_rows: int,
    classes: int,
    samples: Callable[[Draw], Samples],
    plan: NetworkPlan,
    draw: Draw,
    progress: Callable[[float], None] = lambda share: None,
) -> Network:
    """Fit a network to samples that are drawn for each epoch; `vectors` (tasks, dimension)."""
    weights = _initial(vectors.shape[1], history_rows, classes, plan, draw)
    dense = {name: Adam(getattr(weights, name)) for name in ("query", "bias", "unasked", "out", "out_bias")}
    sparse = RowAdam(weights.history)
    step = 0
    for epoch in range(plan.epochs):
        drawn = samples(draw)
        steps = plan.epochs * -(-len(drawn) // plan.batch)
        order = draw.permutation(len(drawn))
        for start in range(0, len(drawn), plan.batch):
            rate = plan.rate * 0.5 * (1 + np.cos(np.pi * min(step / steps, 1.0)))
            step += 1
            slopes, rows, history = gradients(weights, vectors, drawn, order[start : start + plan.batch], plan, draw)
            for name, gradient in slopes.items():
                decay = plan.decay if gradient.ndim == 2 else 0.0
                dense[name].step(gradient, float(rate), decay)
            sparse.step(rows, history, float(rate), plan.decay)
        progress((epoch + 1) / plan.epochs)
    return weights


def _initial(dimension: int, history_rows: int, classes: int, plan: NetworkPlan, draw: Draw) -> Network:
    def normal(rows: int, columns: int, deviation: float) -> Floats:
        return (deviation * draw.standard_normal((rows, columns))).astype(np.float32)

    return Network(
        query=normal(dimension, plan.hidden, max(dimension, 1) ** -0.5),
        history=normal(history_rows, plan.hidden, 0.25),
        bias=np.zeros(plan.hidden, np.float32),
        unasked=np.zeros(plan.hidden, np.float32),
        out=normal(plan.hidden, classes, plan.hidden**-0.5),
        out_bias=np.zeros(classes, np.float32),
    )


def gradients(
    weights: Network, vectors: Floats, drawn: Samples, places: Ints, plan: NetworkPlan, draw: Draw
) -> tuple[dict[str, Floats], Ints, Floats]:
    """Return the gradients of the mean cross-entropy over the samples at `places`: those of the dense weights by name;
    the rows of the history's weights that these samples use; and the gradients of these rows."""
    tasks = drawn.tasks[places]
    asked = (tasks >= 0) & (draw.random(len(tasks)) >= plan.unasked)
    query = np.where(asked[:, None], vectors[np.maximum(tasks, 0)], np.float32(0))
    if plan.blur:
        query *= _draw_mask(query.shape, plan.blur, draw)
    rows = drawn.rows[places]
    summed, used, spread = _gather(weights.history, rows)
    hidden = query @ weights.query
    hidden += summed
    hidden += weights.bias
    hidden += np.where(asked[:, None], np.float32(0), weights.unasked)
    mask = (hidden > 0).astype(np.float32)
    if plan.dropout:
        mask *= _draw_mask(hidden.shape, plan.dropout, draw)
    hidden *= mask
    error = softmax(hidden @ weights.out + weights.out_bias)
    targets = drawn.targets[places]
    row, column = (targets != NONE).nonzero()
    error[row, targets[row, column]] -= (1 / (targets != NONE).sum(1, dtype=np.float32))[row]
    error /= len(places)
    back = (error @ weights.out.T) * mask
    gradients = {
        "query": query.T @ back,
        "bias": back.sum(0),
        "unasked": back[~asked].sum(0),
        "out": hidden.T @ error,
        "out_bias": error.sum(0),
    }
    return gradients, used, spread.T @ back


def _draw_mask(shape: tuple[int, ...], share: float, draw: Draw) -> Floats:
    """Draw a mask that drops this share and scales up the rest."""
    return (draw.random(shape, np.float32) >= share).astype(np.float32) * np.float32(1 / (1 - share))


def _gather(history: Floats, rows: Ints) -> tuple[Floats, Ints, Floats]:
    """Return the sum of each sample's rows, the rows that occur, and how often each sample has each (samples,
    occurring)."""
    used, where = np.unique(rows, return_inverse=True)
    places = np.arange(len(rows))[:, None] * len(used) + where.reshape(rows.shape)
    spread = np.bincount(places.ravel(), minlength=len(rows) * len(used)).astype(np.float32)
    spread = spread.reshape(len(rows), len(used))
    if len(used) and used[-1] == len(history):  # the filler
        used, spread = used[:-1], spread[:, :-1]
    return spread @ history[used], used, spread


def pad_lists(lists: Sequence[Sequence[int]], filler: int) -> Ints:
    """Return the lists as the rows of one array, shorter ones padded with `filler`; (lists, longest)."""
    longest = max(map(len, lists), default=0)
    return np.asarray([[*each, *[filler] * (longest - len(each))] for each in lists], np.int64).reshape(
        len(lists), longest
    )
