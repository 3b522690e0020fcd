"""What the benchmark of predictions calls, and with which model."""

from __future__ import annotations

import itertools

from bench.growth.prediction import CALLED, TASK, draw_tools, make_model
from foretool.learning.rankers.dtdr import Dtdr
from foretool.storage.records import ToolId


def test_calls_go_to_another_tool_each_time_or_always_to_the_same() -> None:
    drawn = draw_tools("bridge", 500)
    assert len(drawn) == 500
    assert set(drawn) == set(range(1, CALLED + 1))
    assert all(one != other for one, other in itertools.pairwise(drawn))
    assert drawn == draw_tools("name", 500)
    assert set(draw_tools("again", 500)) == {1}


def test_the_model_predicts_and_knows_the_words_of_the_task() -> None:
    tools = [ToolId(f"s0__s0_t{at}") for at in range(1, 20)]
    model = Dtdr.loads(make_model(tools, 50))
    model.align(tools, None)
    chance, end = model.after(tools[:2], None, (TASK,))
    assert len(chance) == len(tools) and abs(float(chance.sum()) + end - 1) < 1e-3
    assert len(model.of_task(None, (TASK,)).near.weights) and not len(model.of_task(None, ()).near.weights)
