"""DTDR as published (section 4.1): DTDR-C and DTDR-L, kept runnable beside the form that is served (`dtdr.py`).

Where the paper leaves something open, the choice is said here: the text of a history, what is backed off to, the start
mark. Classes are numbers; END is one more than the last tool. `training.dtdr_published` fits both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from foretool.retrieval.model_format import Floats

LAST = 3
"""l: calls of the history that are read; gains taper off beyond (section 6, figure 5b)."""
START = -1
"""Stands before the first call, so that a short history is told from the end of a long one."""
PRIOR_SHARE = 0.5
"""What the cluster's own calls count for where none of its histories ends like ours."""
GLOBAL_SHARE = 0.05
"""What the graph over all demonstrations adds everywhere: without it a rare history scores every tool 0."""


def history_text(query: str, names: Sequence[str]) -> str:
    """q + f_0:t-1, the concatenation of strings that DTDR-L embeds: the query, a blank, the names by commas."""
    return f"{query} {', '.join(names)}" if names else query


class DependencyGraph:
    """G_k: which calls follow a history in some demonstrations, and how often (DTDR-C)."""

    def __init__(self, walks: Iterable[Sequence[int]], classes: int) -> None:
        """`walks`: the classes of each demonstration in order, END (`classes`) last."""
        self.classes = classes
        self._follows: dict[tuple[int, ...], Counter[int]] = {}
        for walk in walks:
            for place, called in enumerate(walk):
                for suffix in (*suffixes(walk[:place]), ()):
                    self._follows.setdefault(suffix, Counter())[called] += 1

    def after(self, history: Sequence[int]) -> Floats | None:
        """p(f | the longest end of the history that occurs), (classes and END,); None if no end of it does."""
        longest = next((follows for end in suffixes(history) if (follows := self._follows.get(end))), None)
        return None if longest is None else self._shares(longest)

    def prior(self) -> Floats:
        """How often each class is called at all."""
        return self._shares(self._follows.get((), Counter()))

    def _shares(self, follows: Counter[int]) -> Floats:
        found = np.zeros(self.classes + 1, np.float32)
        found[list(follows)] = list(follows.values())
        return found / np.float32(max(follows.total(), 1))


def suffixes(history: Sequence[int]) -> list[tuple[int, ...]]:
    """The ends of a history, the longest first, of at most `LAST` calls; a whole one has the start mark."""
    marked = (START, *history) if len(history) < LAST else tuple(history[-LAST:])
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
        """The probability of each class to come next, (classes and END,)."""
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
        """The probability of each class, (classes and END,); `vector` of `history_text`."""
        logits = vector @ self.weights + self.bias
        raised = np.exp(logits - logits.max())
        chance: Floats = raised / raised.sum()
        return chance

    def retrieve(self, vector: Floats, alpha: float) -> list[int]:
        """F_t = {f : P_phi(f | q, f_0:t-1) > alpha}, the likeliest first."""
        chance = self.after(vector)
        return sorted(np.flatnonzero(chance > alpha).tolist(), key=lambda number: -chance[number])
