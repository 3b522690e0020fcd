"""DTDR as published (section 4.1): DTDR-C and DTDR-L, with their training, beside the form that is served.

Where the paper leaves something open, the choice is named at its setting: the text of a history, what a rare history
falls back to, the start mark. Classes are numbers; END is one more than the last tool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from foretool.learning.training.demonstrations import Demonstration
from foretool.learning.training.optimizers import Adam
from foretool.retrieval.model_format import Floats
from foretool.retrieval.score_sum import softmax

LAST = 3
"""l: calls of the history that are read; more gain little (section 6, figure 5b)."""
START = -1
"""Stands before the first call, so that a short history differs from the end of a long one."""
PRIOR_SHARE = 0.5
"""Weight of the cluster's own calls where none of its histories ends like the given one."""
GLOBAL_SHARE = 0.05
"""Weight of the graph over all demonstrations; without it a rare history scores every tool 0."""
DEMONSTRATIONS_A_CLUSTER = 10
"""K = n / 10 (section 6, figure 5c)."""
ROUNDS = 50
EPOCHS, BATCH, RATE = 100, 128, 3e-2
"""Not in the paper: on vectors of length 1 one layer needs a high rate and many epochs."""


def history_text(query: str, names: Sequence[str]) -> str:
    """q + f_0:t-1, the concatenation of strings that DTDR-L embeds: the query, a blank, the names by commas."""
    return f"{query} {', '.join(names)}" if names else query


class DependencyGraph:
    """G_k: which calls follow a history in some demonstrations, and how often (DTDR-C)."""

    def __init__(self, walks: Iterable[Sequence[int]], classes: int, last: int = LAST) -> None:
        """`walks`: the classes of each demonstration in order, END (`classes`) last. `last`: calls that are read."""
        self.classes = classes
        self.last = last
        self._follows: dict[tuple[int, ...], Counter[int]] = {}
        for walk in walks:
            for place, called in enumerate(walk):
                for suffix in (*suffixes(walk[:place], last), ()):
                    self._follows.setdefault(suffix, Counter())[called] += 1

    def after(self, history: Sequence[int]) -> Floats | None:
        """p(f | the longest end of the history that occurs), (classes and END,); None if no end of it does."""
        longest = next((follows for end in suffixes(history, self.last) if (follows := self._follows.get(end))), None)
        return None if longest is None else self._shares(longest)

    def prior(self) -> Floats:
        """Return the share of each class among all calls."""
        return self._shares(self._follows.get((), Counter()))

    def _shares(self, follows: Counter[int]) -> Floats:
        found = np.zeros(self.classes + 1, np.float32)
        found[list(follows)] = list(follows.values())
        return found / np.float32(max(follows.total(), 1))


def suffixes(history: Sequence[int], last: int = LAST) -> list[tuple[int, ...]]:
    """Return the ends of a history, the longest first, of at most `last` calls; a whole one has the start mark."""
    marked = (START, *history) if len(history) < last else tuple(history[-last:])
    return [marked[start:] for start in range(len(marked))]


class DtdrC:
    """F_t = G_C(theta(q))(f_0:t-1): the graph of the task's cluster, walked by the history."""

    def __init__(self, centroids: Floats, graphs: Sequence[DependencyGraph], whole: DependencyGraph) -> None:
        """`centroids` (clusters, dimension); one graph a cluster; `whole`: the graph over all demonstrations."""
        self.centroids = centroids
        self.graphs = tuple(graphs)
        self.whole = whole

    def cluster(self, vector: Floats) -> int:
        """C(theta(q)): the nearest centroid."""
        return int(((self.centroids - vector) ** 2).sum(1).argmin())

    def after(self, vector: Floats, history: Sequence[int]) -> Floats:
        """Return the probability of each class to come next, (classes and END,)."""
        graph = self.graphs[self.cluster(vector)]
        anywhere = self.whole.after(history)
        if anywhere is None:
            anywhere = self.whole.prior()
        here = graph.after(history)
        if here is None:
            here = PRIOR_SHARE * graph.prior() + (1 - PRIOR_SHARE) * anywhere
        mixed: Floats = (1 - GLOBAL_SHARE) * here + GLOBAL_SHARE * anywhere
        return mixed


class DtdrL:
    """P_phi(f | q, f_0:t-1) = softmax of one linear layer over theta(q + f_0:t-1)."""

    def __init__(self, weights: Floats, bias: Floats) -> None:
        """`weights` (dimension, classes and END): its columns are learned embeddings of the tools."""
        self.weights = weights
        self.bias = bias

    def after(self, vector: Floats) -> Floats:
        """Return the probability of each class, (classes and END,); `vector` of `history_text`."""
        return softmax(vector @ self.weights + self.bias)

    def retrieve(self, vector: Floats, alpha: float) -> list[int]:
        """F_t = {f : P_phi(f | q, f_0:t-1) > alpha}, the likeliest first."""
        chance = self.after(vector)
        return sorted(np.flatnonzero(chance > alpha).tolist(), key=lambda number: -chance[number])


def fit_c(vectors: Floats, past: Sequence[Demonstration], classes: int, seed: int, *, last: int = LAST,
          a_cluster: int = DEMONSTRATIONS_A_CLUSTER) -> DtdrC:  # fmt: skip
    """Fit DTDR-C: k-means over the queries' `vectors` (demonstrations, dimension), one graph for each cluster. `last`:
    calls of the history that are read; `a_cluster`: demonstrations for each cluster."""
    clusters = max(len(past) // a_cluster, 1)
    centroids, member = k_means(vectors, clusters, np.random.default_rng(seed))
    walks = [[*each.calls, *[classes] * each.ended] for each in past]
    graphs = [
        DependencyGraph((walk for walk, own in zip(walks, member, strict=True) if own == number), classes, last)
        for number in range(len(centroids))
    ]
    return DtdrC(centroids, graphs, DependencyGraph(walks, classes, last))


def k_means(vectors: Floats, clusters: int, draw: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
    """Return centroids and the cluster of each vector; begins with k-means++, an empty cluster keeps its centroid."""
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


def spread_targets(targets: Sequence[tuple[int, ...]], classes: int) -> Floats:
    """Return (steps, classes): equal shares of the acceptable classes, each row adding up to 1."""
    found = np.zeros((len(targets), classes), np.float32)
    for row, target in zip(found, targets, strict=True):
        row[list(target)] = 1 / len(target)
    return found


def fit_l(vectors: Floats, targets: Floats, seed: int) -> DtdrL:
    """Fit DTDR-L, one linear layer, by cross-entropy.

    `vectors` (steps, dimension) of `history_text`; `targets` (steps, classes): `spread_targets` of the acceptable next
    calls.
    """
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
