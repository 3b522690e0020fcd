"""What the benchmark of the next tool counts and prints, on a set small enough to know what is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

import numpy as np

from bench.papers import dtdr
from bench.papers.dtdr import NewToolWatch, demonstration, figures, judged, read, rows
from foretool.learning.training import Method
from foretool.learning.training.demonstrations import Demonstration, PredictionStep, dependencies
from foretool.learning.training.dtdr import METHOD, DtdrTrainer, Recipe
from foretool.learning.training.perceptron import NetworkPlan

SMALL = Recipe(networks=1, plan=NetworkPlan(hidden=16, batch=16, rate=1e-2, decay=0.0), steps=60)
NAMES = ("rail_search", "rail_book", "inn_search", "inn_book", "mail_list", "mail_read")
TASKS = (("book a train", NAMES[:2]), ("book a hotel", NAMES[2:4]), ("read my mail", NAMES[4:]))


def lines(path: Path, given: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(each) + "\n" for each in given))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    lines(folder / "tools.jsonl", [{"name": name, "description": name.replace("_", " ")} for name in NAMES])
    past = [{"query": f"{task} {number}", "calls": list(calls)} for number in range(12) for task, calls in TASKS]
    lines(folder / "train.jsonl", past)
    lines(folder / "renamed.jsonl", [{"query": task, "calls": list(calls)} for task, calls in TASKS])
    other = tmp_path / "taskbench_multimedia"
    other.mkdir()
    lines(other / "tools.jsonl", [{"name": "paint", "description": "paint"}, {"name": "mail_read", "description": ""}])
    return tmp_path


def test_every_row_is_of_the_file_that_was_named_and_what_is_served_comes_first(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dtdr, "METHOD", Method(METHOD.minimum, DtdrTrainer(SMALL).train))
    monkeypatch.setattr(dtdr, "latency", lambda: {"set": "5000 tools", "method": "as served, one prediction", "n": 0})
    monkeypatch.setattr(dtdr.encoders, "resolve_weights", lambda which: ())
    found = list(rows(data, "renamed.jsonl", ["small"], None))
    later = "as served, a fifth of the tools installed after training"
    assert [row["method"] for row in found] == [
        "as served",
        "as served, nobody said the task",
        f"{later}, all steps",
        f"{later}, steps to those tools",
        f"{later}, steps to others",
        "as served, 1 tools that nobody needs installed after training",
        "as served, one prediction",
    ]
    assert [row["n"] for row in found] == [9, 9, 9, 1, 8, 9, 0]
    assert all(0 <= row["mrr"] <= 1 and len(row["mrr_interval"]) == 2 for row in found[:-1])
    assert found[0]["mrr"] > 0.9 and found[3].keys() >= {"likely", "new_together"} and "false" in found[4]


def test_a_step_counts_the_first_acceptable_place_and_as_many_as_are_acceptable() -> None:
    asked = [Demonstration((0, 1), dependencies(2, []), "both at once")]
    found = judged(asked, 2, lambda each, step: np.asarray([0.2, 0.3, 0.5], np.float32))
    # Either of two, at places 2 and 3; then the other, last; then END, first.
    assert [(each.reciprocal_rank, each.f1) for each in found] == [(0.5, 0.5), (0.5, 0.0), (1.0, 1.0)]
    row = figures(found)
    assert (row["n"], row["mrr"], row["f1"]) == (3, 0.6667, 0.5)


def test_new_tools_are_watched_where_they_are_needed_and_where_not() -> None:
    asked = Demonstration((0,), ((),))
    watched = NewToolWatch(lambda each, step: np.asarray([0.5, 0.14, 0.2, 0.16], np.float32), {1, 2})
    for acceptable in ((2,), (1,), (0,)):
        watched(asked, PredictionStep((), acceptable))
    assert watched.shares([0, 1], needed=True) == {"likely": 0.5, "new_together": 0.34}
    assert watched.shares([2], needed=False) == {"false": 1.0, "new_together": 0.34}


def test_edges_say_what_waits_for_what_and_without_them_each_call_for_the_one_before(data: Path) -> None:
    number = {"a": 0, "b": 1}
    assert demonstration({"query": "x", "calls": ["a", "b"]}, number).after == ((), (0,))
    assert demonstration({"query": "x", "calls": ["a", "b"], "edges": []}, number).after == ((), ())
    world = read(data / "small", "renamed.jsonl", [], None)
    assert (len(world.tools), len(world.train), len(world.asked), world.readings) == (6, 36, 3, None)


def test_published_and_served_forms_get_the_same_histories(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dialog = [{"query": task, "calls": list(calls), "history": ["mail_list"]} for task, calls in TASKS]
    lines(data / "small" / "dialog.jsonl", dialog)
    lines(data / "small" / "train.jsonl", dialog * 8)
    world = read(data / "small", "dialog.jsonl", [], None)
    given: dict[str, list[int]] = {}

    def note(method: str, asked: list[Demonstration]) -> None:
        given[method] = sorted({len(each.earlier) for each in asked})

    monkeypatch.setattr(dtdr, "METHOD", Method(METHOD.minimum, DtdrTrainer(SMALL).train))
    monkeypatch.setattr(dtdr, "DtdrTrainer", lambda: DtdrTrainer(SMALL))
    monkeypatch.setattr(dtdr, "published_c", lambda each: lambda *_: np.zeros(each.end + 1, np.float32))
    monkeypatch.setattr(dtdr, "published_l", lambda each: lambda *_: np.zeros(each.end + 1, np.float32))
    judge = dtdr.judged
    asked_of: list[list[Demonstration]] = []
    monkeypatch.setattr(
        dtdr, "judged", lambda asked, end, predict: asked_of.append(asked) or judge(asked, end, predict)
    )
    world = world._replace(frozen=lambda texts: np.zeros((len(texts), 4), np.float32))
    for row in dtdr.over(world, []):
        note(row["method"], asked_of[-1])
    kinds = ("as served", "as published: DTDR-C", "as published: DTDR-L")
    assert [given[kind] for kind in kinds] == [[0], [0], [0]]
    assert [given[f"{kind}, calls of earlier turns too"] for kind in kinds] == [[1], [1], [1]]
