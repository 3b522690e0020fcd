"""Fits DTDR-C and DTDR-L as published (section 4.1); what the paper leaves open is named at each setting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.blend import softmax
from foretool.retrieval.model_format import Floats
from foretool.retrieval.papers.dtdr import DependencyGraph, DtdrC, DtdrL
from foretool.retrieval.training.adam import Adam
from foretool.retrieval.training.demonstrations import Demonstration

DEMONSTRATIONS_A_CLUSTER = 10
"""K = n / 10 (section 6, figure 5c)."""
ROUNDS = 50
EPOCHS, BATCH, RATE = 100, 128, 3e-2
"""Not in the paper: on vectors of length 1 one layer needs a high rate, 1e-2 and 40 epochs cost .03 to .06 MRR."""


def fit_c(vectors: Floats, past: Sequence[Demonstration], classes: int, seed: int) -> DtdrC:
    """k-means over the queries' `vectors` (demonstrations, dimension), one dependency graph a cluster."""
    clusters = max(len(past) // DEMONSTRATIONS_A_CLUSTER, 1)
    centroids, member = k_means(vectors, clusters, np.random.default_rng(seed))
    walks = [[*each.calls, *[classes] * each.ended] for each in past]
    graphs = [
        DependencyGraph((walk for walk, own in zip(walks, member, strict=True) if own == number), classes)
        for number in range(len(centroids))
    ]
    return DtdrC(centroids, graphs, DependencyGraph(walks, classes))


def k_means(vectors: Floats, clusters: int, draw: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
    """Centroids and the cluster of each vector; begins with k-means++, an empty cluster keeps its centroid."""
    centroids = _spread(vectors, clusters, draw)
    member = _nearest(vectors, centroids)
    for _ in range(ROUNDS):
        for number in range(clusters):
            own = vectors[member == number]
            if len(own):
                centroids[number] = own.mean(0)
        moved = _nearest(vectors, centroids)
        if np.array_equal(moved, member):
            break
        member = moved
    return centroids, member


def _spread(vectors: Floats, clusters: int, draw: np.random.Generator) -> Floats:
    """First centroids, each far from those before it with the odds of its squared distance."""
    chosen = [int(draw.integers(len(vectors)))]
    distance = ((vectors - vectors[chosen[0]]) ** 2).sum(1)
    while len(chosen) < clusters:
        total = float(distance.sum(dtype=np.float64))
        # Where all are alike, any will do.
        odds = distance.astype(np.float64) / total if total > 0 else np.full(len(vectors), 1 / len(vectors))
        chosen.append(int(draw.choice(len(vectors), p=odds / odds.sum())))
        distance = np.minimum(distance, ((vectors - vectors[chosen[-1]]) ** 2).sum(1))
    return vectors[chosen].copy()


def _nearest(vectors: Floats, centroids: Floats) -> NDArray[np.int64]:
    distance = (centroids**2).sum(1) - 2 * vectors @ centroids.T
    return np.asarray(distance.argmin(1), np.int64)


def fit_l(vectors: Floats, targets: Floats, seed: int) -> DtdrL:
    """One linear layer by cross-entropy; `vectors` (steps, dimension) of `history_text`, `targets` (steps, classes):
    the acceptable next calls alike, each row adding up to 1."""
    draw = np.random.default_rng(seed)
    weights = np.zeros((vectors.shape[1], targets.shape[1]), np.float32)
    bias = np.zeros(targets.shape[1], np.float32)
    adams = Adam(weights), Adam(bias)
    for _ in range(EPOCHS):
        order = draw.permutation(len(vectors))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            error = (softmax(vectors[batch] @ weights + bias) - targets[batch]) / np.float32(len(batch))
            adams[0].step(vectors[batch].T @ error, RATE)
            adams[1].step(error.sum(0), RATE)
    return DtdrL(weights, bias)
