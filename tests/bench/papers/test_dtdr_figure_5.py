"""Figure 5 of DTDR: more of the history, and more clusters, are read where a cell says so."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from collections.abc import Sequence

import numpy as np

from bench.datasets import tool_of
from bench.papers.dtdr import World, text_of
from bench.papers.dtdr_figure_5 import rows
from bench.papers.published.dtdr import suffixes
from foretool.learning.training.demonstrations import Demonstration, PredictionStep, dependencies
from foretool.retrieval.model_format import Floats

LETTER, TRAIN = "answer a letter", "go by train"
ASKED = ([0, 1, 2], LETTER), ([0, 1, 3], TRAIN)


def embed(texts: Sequence[str]) -> Floats:
    return np.asarray([[float(text == LETTER), float(text == TRAIN)] for text in texts], np.float32)


def demonstrations(times: int) -> list[Demonstration]:
    return [
        Demonstration(tuple(calls), dependencies(3, None), task, True) for _ in range(times) for calls, task in ASKED
    ]


def world(times: int) -> World:
    tools = [tool_of("", {"name": f"t{at}"}) for at in range(4)]
    return World("small", tools, demonstrations(times), demonstrations(1), None, None, None, embed)


def test_a_cell_reads_as_many_calls_and_has_as_many_clusters_as_it_says() -> None:
    assert suffixes([5, 6, 7], 1) == [(7,)]
    found = {row["method"]: row for row in rows(world(5), ["c"])}
    assert found["DTDR-C: a cluster 5"]["clusters"] == 2
    assert found["DTDR-C: a cluster all"]["clusters"] == 1
    # One cluster cannot know which of the two tasks goes on with which tool; two clusters do.
    assert found["DTDR-C: a cluster 5"]["mrr"] == 1.0
    assert found["DTDR-C: a cluster all"]["mrr"] < 1.0
    assert len(found) == 6


def test_the_linear_form_reads_the_latest_calls_behind_the_task() -> None:
    small, each = world(1), demonstrations(1)[0]
    step = PredictionStep((0, 1, 2), (3,))
    assert text_of(small, each, step) == f"{LETTER} t0, t1, t2"
    assert text_of(small, each, step, 2) == f"{LETTER} t1, t2"
    assert text_of(small, each, step, 0) == LETTER
    assert text_of(small, each, PredictionStep((0,), (1,)), 3) == f"{LETTER} t0"


def test_fewer_demonstrations_are_drawn_several_times() -> None:
    found = {row["method"]: row for row in rows(world(20), ["a"])}
    assert set(found) == {f"{form}: {size} demonstrations" for form in ("DTDR-C", "DTDR-L") for size in (25, 40)}
    assert [len(row["mrr by draw"]) for row in found.values()] == [3, 3, 1, 1]
    assert found["DTDR-C: 25 demonstrations"]["mrr"] == 1.0
