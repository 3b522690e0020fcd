"""Fits the linear maps of DTDR (`retrieval.linear_maps`): directions of words, and where the next text lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import log

import numpy as np
from numpy.typing import NDArray

from foretool.learning.linear_maps import PLACES, Lsa, NextText, call_features, count_terms, no_next_text
from foretool.learning.training.demonstrations import Demonstration
from foretool.retrieval.model_format import Floats

MOST_TERMS = 10_000
_LEAST_TEXTS = 2
"""A term in fewer texts connects none of them."""
_PASSES = 4
"""Power iterations, enough for the main directions."""
_SPARE = 16
_TEXTS_AT_ONCE, STEPS_AT_ONCE = 512, 4_096
_RIDGE = 5.0
"""The pull of the map to the next text to 0, in steps; 3 to 10 do equally well."""


def fit_lsa(texts: Sequence[str], dimension: int, seed: int) -> Lsa:
    """Fit at most `dimension` directions, and no more than there are texts or terms: a truncated SVD of the TF-IDF
    matrix, by randomized subspace iteration (Halko, Martinsson, Tropp 2011)."""
    counts = [count_terms(text) for text in texts]
    within = Counter(term for count in counts for term in count)
    frequent = sorted((term for term, n in within.items() if n >= _LEAST_TEXTS), key=lambda term: (-within[term], term))
    vocabulary = frequent[:MOST_TERMS]
    row_of = {term: row for row, term in enumerate(vocabulary)}
    idf = np.asarray([1 + log((1 + len(texts)) / (1 + within[term])) for term in vocabulary], np.float32)
    rank = min(dimension, len(vocabulary), len(texts))
    if not rank:
        return Lsa((), np.zeros((0, 0), np.float32))

    rows = [_row(count, row_of, idf) for count in counts]

    def chunks() -> Iterator[Floats]:
        for start in range(0, len(rows), _TEXTS_AT_ONCE):
            part = rows[start : start + _TEXTS_AT_ONCE]
            matrix = np.zeros((len(part), len(idf)), np.float32)
            for text, (places, values) in enumerate(part):
                matrix[text, places] = values
            yield matrix

    draw = np.random.default_rng(seed)
    basis = draw.standard_normal((len(vocabulary), min(rank + _SPARE, len(vocabulary)))).astype(np.float32)
    for _ in range(_PASSES):
        basis = np.linalg.qr(sum(chunk.T @ (chunk @ basis) for chunk in chunks()))[0]
    _, _, turned = np.linalg.svd(np.concatenate([chunk @ basis for chunk in chunks()]), full_matrices=False)
    directions = (basis @ turned[:rank].T).astype(np.float32)  # (terms, rank): right singular vectors
    return Lsa(vocabulary, idf[:, None] * directions)


def _row(count: Counter[str], row_of: dict[str, int], idf: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the terms of a text that are known, and what each is worth in a row of length 1."""
    known = [(row, 1 + log(n)) for term, n in count.items() if (row := row_of.get(term)) is not None]
    places = np.asarray([row for row, _ in known], np.int64)
    values: Floats = np.asarray([value for _, value in known], np.float32) * idf[places]
    return places, values / np.float32(max(float(np.linalg.norm(values)), 1e-12))


def fit_next_text(
    demonstrations: Sequence[Demonstration], tasks: Floats, texts: Mapping[int, Floats], classes: int
) -> NextText:
    """Fit the map. `tasks` (demonstrations, dimension), zeros where the task is not known: such demonstrations teach
    nothing here; `texts` by class."""
    if not texts or not tasks.shape[1]:
        return no_next_text(tasks.shape[1])
    centre = np.mean(list(texts.values()), 0).astype(np.float32)
    size = tasks.shape[1] + 2 * len(centre) + PLACES
    square, product = np.zeros((size, size), np.float32), np.zeros((size, len(centre)), np.float32)
    steps = _steps(demonstrations, tasks, texts, classes)
    while part := list(islice(steps, STEPS_AT_ONCE)):
        rows, wanted = (np.stack(each) for each in zip(*part, strict=True))
        square += rows.T @ rows
        product += rows.T @ (wanted - centre)
    square[np.diag_indices(size)] += np.float32(_RIDGE)
    weights = np.linalg.solve(square, product).astype(np.float32)
    return NextText(weights[: tasks.shape[1]], weights[tasks.shape[1] :], centre)


def _steps(
    demonstrations: Sequence[Demonstration], tasks: Floats, texts: Mapping[int, Floats], classes: int
) -> Iterator[tuple[Floats, Floats]]:
    """Yield what is known at each step that asks for a call, and the mean text of the acceptable calls."""
    dimension = len(next(iter(texts.values())))
    for each, task in zip(demonstrations, tasks, strict=True):
        if not task.any():
            continue
        for step in each.steps(classes):
            wanted = [texts[call] for call in step.acceptable if call in texts]
            if wanted:
                called = [texts[call] for call in step.history if call in texts]
                given = np.concatenate([task, call_features(called, len(step.history), dimension)])
                yield given, np.mean(wanted, 0).astype(np.float32)
