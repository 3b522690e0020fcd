"""Turns a text's words into a short vector: TF-IDF over words and pairs, projected to its main directions (LSA).

Words keep what an encoder blurs: names, numbers of things, a domain's own terms. The directions come from the texts of
the episodes (`training.lsa`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import log

import numpy as np

from foretool.retrieval.model_format import Floats
from foretool.retrieval.words import terms


def count_terms(text: str) -> Counter[str]:
    """Counts each word and each pair of neighbours."""
    words = terms(text)
    return Counter(words) + Counter(f"{a} {b}" for a, b in pairwise(words))


class Lsa:
    """Turns words into vectors by a fitted projection."""

    def __init__(self, vocabulary: Sequence[str], projection: Floats) -> None:
        """`projection` (vocabulary, dimension): the idf of a term times its place in the main directions."""
        self.vocabulary = tuple(vocabulary)
        self.projection = projection
        self._row_of = {term: row for row, term in enumerate(vocabulary)}

    @property
    def dimension(self) -> int:
        return int(self.projection.shape[1])

    def vector(self, text: str) -> Floats:
        """(dimension,) of length 1; zeros if no word is known."""
        known = [
            (row, 1 + log(n)) for term, n in count_terms(text).items() if (row := self._row_of.get(term)) is not None
        ]
        if not known:
            return np.zeros(self.dimension, np.float32)
        rows, counts = zip(*known, strict=True)
        summed: Floats = np.asarray(counts, np.float32) @ self.projection[list(rows)]
        length = float(np.linalg.norm(summed))
        return summed / np.float32(length) if length > 0 else summed

    def vectors(self, texts: Iterable[str]) -> Floats:
        """(texts, dimension)."""
        found = [self.vector(text) for text in texts]
        return np.stack(found) if found else np.zeros((0, self.dimension), np.float32)
