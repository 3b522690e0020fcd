"""The forms of MassTool as published, on the vectors of one encoder."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from bench.datasets import Task, tool_of
from bench.kept_encoder import KeptEncoder
from bench.papers.masstool import World, published_task
from bench.papers.masstool_parts import (
    FORMS,
    NAMES,
    Plan,
    alone,
    centred,
    examples,
    mean_of,
    over_full,
    papers_rows,
    rows,
    spread_row,
)
from bench.papers.published.masstool import Settings
from foretool.retrieval.model_format import Floats

TOOLS = [tool_of("", {"name": name, "description": name}) for name in ("dice", "news", "maps")]
TASKS = [
    Task("roll it", (frozenset((TOOLS[0].id,)),)),
    Task("where is the news", (frozenset((TOOLS[1].id,)), frozenset((TOOLS[2].id,)))),
]
WORLD = World("toy", TOOLS, TASKS * 4, TASKS)


class Encoder:
    """Knows what both tasks are about."""

    name = "toy"

    def documents(self, texts: Sequence[str]) -> Floats:
        return np.eye(3, dtype=np.float32)

    def queries(self, texts: Sequence[str]) -> Floats:
        return np.asarray([(1, 0, 0) if "roll" in text else (0, 0.6, 0.8) for text in texts], np.float32)


ENCODER = cast(KeptEncoder, Encoder())


def test_every_form_is_a_setting_and_the_full_one_leaves_nothing_out() -> None:
    assert Settings(**FORMS["full"]) == Settings()
    assert Settings(**FORMS["DF"]).without == ("DF",)
    assert Settings(**FORMS["detection"]).detection == 0.0
    assert Settings(**FORMS["addition"]).transfer == "addition"


def test_a_task_of_two_tools_is_fine_tuned_on_one_and_the_other_is_no_negative() -> None:
    found = examples(WORLD, 8)
    assert {(each.tool, each.also) for each in found if each.query == "roll it"} == {(0, ())}
    assert {(each.tool, each.also) for each in found if each.query != "roll it"} <= {(1, (2,)), (2, (1,))}


def test_the_encoder_alone_ranks_by_cosine_and_a_loss_is_told_on_the_same_queries() -> None:
    answer = alone(WORLD, ENCODER)
    assert answer("where is the news") == [TOOLS[2].id, TOOLS[1].id, TOOLS[0].id]
    worse = {name: [0.5, 1.0] for name in ("R@3", "N@3", "R@5", "N@5")}
    assert over_full(worse, {name: [1.0, 1.0] for name in worse})["R@3_over"][0] == -0.25


def test_the_figures_of_the_paper_stand_first() -> None:
    assert next(iter(papers_rows()))["method"] == "paper: BM25"


def test_centred_vectors_have_no_direction_in_common_and_length_1() -> None:
    encoder = centred(ENCODER, WORLD)
    task = published_task(WORLD, encoder, ())
    assert np.allclose(np.linalg.norm(task.queries, axis=1), 1) and np.allclose(np.linalg.norm(task.tools, axis=1), 1)
    plain = spread_row(WORLD, ENCODER, Settings(neighbours=3))
    less = spread_row(WORLD, encoder, Settings(neighbours=3))
    assert less["query_tool"] < plain["query_tool"] and less["query_query"] < plain["query_query"]
    # Each query has three neighbours of the same words, at cosine 1.
    assert plain["pass_filter"] == 1.0 and plain["query_own_tool"] == 0.85


def test_the_mean_over_seeds_is_taken_query_by_query() -> None:
    one, other = ({name: values for name in NAMES} for values in ([0.0, 1.0], [1.0, 1.0]))
    assert mean_of([one, other])["R@5"] == [0.5, 1.0]


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_form_is_compared_with_the_whole_of_it_and_kept(tmp_path: Path) -> None:
    plan = Plan("frozen", "toy", 2, (7, 0), 0.6)
    found = {row["method"]: row for row in rows(WORLD, ENCODER, ["hello"], ["alone", "full", "CL"], plan, tmp_path)}
    assert list(found) == ["frozen: alone", "frozen: full", "frozen: CL"]
    assert "R@5_over" in found["frozen: CL"] and "R@5_over" not in found["frozen: full"]
    assert found["frozen: full"]["past"] == 8 and len(found["frozen: full"]["R@5 by seed"]) == 2
    assert len(list(tmp_path.glob("parts-*.json"))) == 4
    again = {row["method"]: row for row in rows(WORLD, ENCODER, ["hello"], ["full", "CL"], plan, tmp_path)}
    assert again["frozen: CL"] == found["frozen: CL"]
