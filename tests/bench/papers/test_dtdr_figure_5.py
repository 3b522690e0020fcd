"""Figure 5 of DTDR: more of the history, and more clusters, are read where a cell says so."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from collections.abc import Sequence

import numpy as np

from bench.datasets import tool_of
from bench.papers.dtdr import World
from bench.papers.dtdr_figure_5 import rows
from foretool.retrieval.model_format import Floats
from foretool.retrieval.papers.dtdr import suffixes
from foretool.retrieval.training.demonstrations import Demonstration, dependencies

LETTER, TRAIN = "answer a letter", "go by train"
ASKED = ([0, 1, 2], LETTER), ([0, 1, 3], TRAIN)


def embed(texts: Sequence[str]) -> Floats:
    return np.asarray([[float(text == LETTER), float(text == TRAIN)] for text in texts], np.float32)


def demonstrations(times: int) -> list[Demonstration]:
    return [
        Demonstration(tuple(calls), dependencies(3, None), task, True) for _ in range(times) for calls, task in ASKED
    ]


def test_a_cell_reads_as_many_calls_and_has_as_many_clusters_as_it_says() -> None:
    assert suffixes([5, 6, 7], 1) == [(7,)]
    tools = [tool_of("", {"name": f"t{at}"}) for at in range(4)]
    world = World("small", tools, demonstrations(5), demonstrations(1), None, None, None, embed)
    found = {row["method"]: row for row in rows(world)}
    assert found["DTDR-C: last 3, a cluster 5"]["clusters"] == 2
    assert found["DTDR-C: last 3, a cluster all"]["clusters"] == 1
    # One cluster cannot know which of the two tasks goes on with which tool; two clusters do.
    assert found["DTDR-C: last 3, a cluster 5"]["mrr"] == 1.0
    assert found["DTDR-C: last 3, a cluster all"]["mrr"] < 1.0
    assert len(found) == 10
