"""Fits the prediction of the next text (`retrieval.linear_maps`) by ridge regression on the steps of demonstrations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from foretool.retrieval.linear_maps import PLACES, NextText, features, no_next_text
from foretool.retrieval.model_format import Floats
from foretool.retrieval.training.demonstrations import Demonstration

RIDGE = 5.0
"""The pull to 0, in steps; 3 to 10 do equally well."""
CHUNK = 4_096


def fit_next_text(
    demonstrations: Sequence[Demonstration], tasks: Floats, texts: Mapping[int, Floats], classes: int
) -> NextText:
    """Fits the map. `tasks` (demonstrations, dimension), zeros where the task is not known: such demonstrations teach
    nothing here; `texts` by class."""
    if not texts or not tasks.shape[1]:
        return no_next_text(tasks.shape[1])
    centre = np.mean(list(texts.values()), 0).astype(np.float32)
    size = tasks.shape[1] + 2 * len(centre) + PLACES
    square, product = np.zeros((size, size), np.float32), np.zeros((size, len(centre)), np.float32)
    inputs: list[Floats] = []
    targets: list[Floats] = []
    for given, wanted in _steps(demonstrations, tasks, texts, classes):
        inputs.append(given)
        targets.append(wanted - centre)
        if len(inputs) == CHUNK:
            square, product = _add_up(square, product, inputs, targets)
            inputs, targets = [], []
    if inputs:
        square, product = _add_up(square, product, inputs, targets)
    square[np.diag_indices(size)] += np.float32(RIDGE)
    weights = np.linalg.solve(square, product).astype(np.float32)
    return NextText(weights[: tasks.shape[1]], weights[tasks.shape[1] :], centre)


def _add_up(
    square: Floats, product: Floats, inputs: Sequence[Floats], targets: Sequence[Floats]
) -> tuple[Floats, Floats]:
    rows = np.stack(inputs)
    return square + rows.T @ rows, product + rows.T @ np.stack(targets)


def _steps(
    demonstrations: Sequence[Demonstration], tasks: Floats, texts: Mapping[int, Floats], classes: int
) -> Iterator[tuple[Floats, Floats]]:
    """Yields what is known at each step that asks for a call, and the mean text of the acceptable calls."""
    dimension = len(next(iter(texts.values())))
    for each, task in zip(demonstrations, tasks, strict=True):
        if not task.any():
            continue
        for step in each.steps(classes):
            wanted = [texts[call] for call in step.acceptable if call in texts]
            if wanted:
                called = [texts[call] for call in step.history if call in texts]
                given = np.concatenate([task, features(called, len(step.history), dimension)])
                yield given, np.mean(wanted, 0).astype(np.float32)
