"""A text's words as a short vector: TF-IDF over words and pairs of words, projected to its main directions (LSA).

What an encoder blurs, the words keep: names, numbers of things, a domain's own terms. Needs no weights: the directions
come from the texts of the episodes (`training.latent`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import log

import numpy as np

from foretool.retrieval.model_format import Floats
from foretool.retrieval.words import terms


def counted(text: str) -> Counter[str]:
    """How often each word and each pair of neighbours occurs."""
    words = terms(text)
    return Counter(words) + Counter(f"{a} {b}" for a, b in pairwise(words))


class Latent:
    """Words to vectors."""

    def __init__(self, vocabulary: Sequence[str], projection: Floats) -> None:
        """`projection` (vocabulary, dimension): the idf of a term times its place in the main directions."""
        self.vocabulary = tuple(vocabulary)
        self.projection = projection
        self._row_of = {term: row for row, term in enumerate(vocabulary)}

    @property
    def dimension(self) -> int:
        return int(self.projection.shape[1])

    def vector(self, text: str) -> Floats:
        """(dimension,) of length 1; zeros where no word is known."""
        known = [(row, 1 + log(n)) for term, n in counted(text).items() if (row := self._row_of.get(term)) is not None]
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
