"""Finds the main directions of the words of many texts: a truncated SVD of their TF-IDF matrix (LSA)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import log
from typing import Any

import numpy as np

from foretool.retrieval.linear_maps import Lsa, count_terms
from foretool.retrieval.model_format import Floats

MOST_TERMS = 10_000
LEAST_TEXTS = 2
"""A term in fewer texts connects none of them."""
PASSES = 4
"""Power iterations, enough for the main directions."""
SPARE = 16
CHUNK = 512


def fit_lsa(texts: Sequence[str], dimension: int, seed: int) -> Lsa:
    """Fits at most `dimension` directions, and no more than there are texts or terms."""
    counts = [count_terms(text) for text in texts]
    within = Counter(term for count in counts for term in count)
    frequent = sorted((term for term, n in within.items() if n >= LEAST_TEXTS), key=lambda term: (-within[term], term))
    vocabulary = frequent[:MOST_TERMS]
    row_of = {term: row for row, term in enumerate(vocabulary)}
    idf = np.asarray([1 + log((1 + len(texts)) / (1 + within[term])) for term in vocabulary], np.float32)
    rank = min(dimension, len(vocabulary), len(texts))
    if not rank:
        return Lsa((), np.zeros((0, 0), np.float32))

    def chunks() -> Iterator[Floats]:
        for start in range(0, len(counts), CHUNK):
            yield _matrix(counts[start : start + CHUNK], row_of, idf)

    directions = _main_directions(chunks, len(vocabulary), rank, np.random.default_rng(seed))
    return Lsa(vocabulary, idf[:, None] * directions)


def _matrix(counts: Sequence[Counter[str]], row_of: dict[str, int], idf: Floats) -> Floats:
    """(texts, terms), each row of length 1."""
    matrix = np.zeros((len(counts), len(idf)), np.float32)
    for text, count in enumerate(counts):
        for term, n in count.items():
            if (row := row_of.get(term)) is not None:
                matrix[text, row] = 1 + log(n)
    matrix *= idf
    matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    return matrix


def _main_directions(chunks: Any, terms: int, rank: int, draw: np.random.Generator) -> Floats:
    """(terms, rank): right singular vectors by randomized subspace iteration (Halko, Martinsson, Tropp 2011)."""
    basis = draw.standard_normal((terms, min(rank + SPARE, terms))).astype(np.float32)
    for _ in range(PASSES):
        basis = np.linalg.qr(sum(chunk.T @ (chunk @ basis) for chunk in chunks()))[0]
    small = np.concatenate([chunk @ basis for chunk in chunks()])
    _, _, turned = np.linalg.svd(small, full_matrices=False)
    found: Floats = basis @ turned[:rank].T
    return found.astype(np.float32)
