"""The arithmetic of the gate's benchmark, by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

import numpy as np
from msgspec.structs import replace

from bench.retrieval.gate import (
    AMONG,
    SAMPLE,
    Sample,
    cosine_below,
    examine,
    examine_set,
    fit,
    fit_logistic,
    floor,
    lower_least,
    merge_gates,
    sampled,
)
from foretool.retrieval import confidence
from foretool.retrieval.confidence import Gate, GateWeights, Logistic, judge
from foretool.retrieval.corpus import Shipped
from foretool.retrieval.ranking import ClauseFit, Evidence, Nearness, Ranked, Ranking
from foretool.storage.records import ToolId


def test_a_sample_is_the_same_every_time_and_not_the_first_of_a_sorted_file() -> None:
    drawn = sampled(list(range(1000)))
    assert drawn == sampled(list(range(1000))) and len(drawn) == SAMPLE and max(drawn) > 900
    assert sorted(sampled([3, 1, 2])) == [1, 2, 3]


def test_a_perfect_gate_has_a_floor_that_falls_with_the_number_of_queries() -> None:
    assert floor([0.5] * 20) > floor([0.5] * 2000) > 0.0


def test_the_fit_finds_the_weights_that_made_the_data() -> None:
    draw = np.random.default_rng(1)
    inputs = np.column_stack([draw.normal(2, 1, 6000), draw.normal(0, 3, 6000)])
    came_true = (draw.random(6000) < 1 / (1 + np.exp(-(1.5 * inputs[:, 0] - 3)))).astype(np.float64)
    model = fit_logistic(inputs, came_true, ["x", "y"], 1e-2)
    assert model.weights["x"] == pytest.approx(1.4, abs=0.2)
    assert model.weights["y"] == pytest.approx(0.0, abs=0.05)


def drawn_samples(count: int) -> list[Sample]:
    """Lists of 20 tools of which a sharp one has the needed tool first, and a flat one has it anywhere."""
    draw = random.Random(3)
    found = []
    for _ in range(count):
        is_sharp = draw.random() < 0.5
        scores = [12.0 if is_sharp else 3.0, *[2.0] * 19]
        ranked = tuple(Ranked(ToolId(f"t{place}"), score) for place, score in enumerate(scores))
        fit = ClauseFit(coverage=0.9 if is_sharp else 0.3, strength=2.0 if is_sharp else 0.8)
        ranked = (replace(ranked[0], fit=fit), *ranked[1:])
        evidence = Evidence(strength=2.0 if is_sharp else 0.8, entropy=0.5, coverage=0.5)
        rank = 1 if is_sharp else draw.randrange(1, 21)
        found.append(Sample(Ranking(ranked, 20, (evidence,), task="a task"), frozenset({rank})))
    return found


def test_a_fitted_gate_is_surer_and_shows_fewer_tools_where_the_list_is_sharp(monkeypatch: pytest.MonkeyPatch) -> None:
    data = drawn_samples(400)
    weights = fit(data)
    monkeypatch.setattr(confidence, "shipped", lambda: Gate("", {"words": weights}))
    sharp, flat = (next(each for each in data if each.ranking.ranked[0].score == score) for score in (12.0, 3.0))
    assert judge(sharp.ranking).k < 12 < judge(flat.ranking).k
    assert (judge(sharp.ranking).level, judge(flat.ranking).level) == ("high", "low")
    found = examine("drawn", data, [Sample(flat.ranking, frozenset())], [Sample(sharp.ranking, frozenset())])
    assert (found["high_right"], found["gone_high"], found["unserved_high"]) == (1.0, 0.0, 1.0)
    assert found["right_high"] >= 0.85 and found["held"] >= 0.85 and found["auc"] >= 0.9


def test_what_a_weight_counts_is_what_as_many_rows_would() -> None:
    x, y = np.array([[0.0], [1.0], [1.0], [2.0]]), np.array([0.0, 1.0, 0.0, 1.0])
    twice = fit_logistic(np.vstack([x, x[:1]]), np.append(y, y[0]), ["x"], 1e-2)
    assert fit_logistic(x, y, ["x"], 1e-2, np.array([2.0, 1.0, 1.0, 1.0])) == twice


def test_near_is_what_all_but_a_few_found_tools_are_and_every_set_counts_alike() -> None:
    def asked(cosine: float, rank: int = 1, *, named: bool = False) -> Sample:
        return Sample(Ranking((), 0, (Evidence(named, nearness=Nearness("near", (cosine,))),)), frozenset({rank}))

    whole = [asked(at / 100) for at in range(100)]
    others = [asked(0.0, confidence.WITHIN + 1), asked(0.0, named=True)]
    # Half of the first set is below .50; each of the 17 values from there on is 1/100 of it and 1/50 of the other.
    assert cosine_below([whole + others, whole[50:]], 0.5) == 0.66


def test_what_was_fitted_for_other_encoders_stays() -> None:
    one, two, three = (GateWeights((), Logistic(0.0, {}), Logistic(float(bias), {})) for bias in range(3))
    kept = Gate("before", {"words": one, "old": one}, {"old": 0.1}, {"old": 0.3})
    new = Gate("now", {"words": two, "new": three}, {"new": 0.2})
    models = {"words": two, "old": one, "new": three}
    assert merge_gates(kept, new) == Gate("now", models, {"old": 0.1, "new": 0.2}, {"old": 0.3})


class Angles:
    """An encoder to which all tools are one direction, and the wish `at` is `at` hundredths near to it."""

    name = "angles"

    def documents(self, texts: Sequence[str]) -> Any:
        return np.asarray([[1.0, 0.0]] * len(texts), np.float32)

    def queries(self, texts: Sequence[str]) -> Any:
        near = np.asarray([float(text) / 100 for text in texts], np.float32)
        return np.stack([near, np.sqrt(1 - near**2)], 1)


def test_the_least_cosine_is_lowered_to_what_nearly_all_everyday_wishes_have(tmp_path: Path) -> None:
    for name in AMONG:
        (tmp_path / name).mkdir()
        (tmp_path / name / "tools.jsonl").write_text(f'{{"server": "s", "name": "{name}", "description": ""}}\n')
    rows = [json.dumps({"id": str(at), "query": str(at), "calls": ["hwu"]}) for at in range(101)]
    (tmp_path / "hwu" / "train.jsonl").write_text("\n".join(rows))
    encoder: Any = Angles()
    assert lower_least(tmp_path, [encoder], {"angles": 0.2, "other": 0.3}) == {"angles": 0.03, "other": 0.3}
    assert lower_least(tmp_path, [encoder], {"angles": 0.01}) == {"angles": 0.01}
    assert lower_least(tmp_path, [encoder, encoder], {}) == {"angles": 0.03, "angles+angles": 0.03}


def write_set(folder: Path, queries: Sequence[str]) -> None:
    """Write a set with a tool whose own words nobody uses, and one that shares the words of no query."""
    folder.mkdir()
    tools = [{"name": "zorb", "description": "Frobnicates quuxes."}, {"name": "blip", "description": "Blips."}]
    (folder / "tools.jsonl").write_text("\n".join(map(json.dumps, tools)))
    (folder / "dev.jsonl").write_text("\n".join(json.dumps({"query": each, "calls": ["zorb"]}) for each in queries))


def test_tools_are_found_by_the_wishes_that_ship_unless_these_are_left_out(tmp_path: Path) -> None:
    write_set(tmp_path / "some", ["book a table for dinner", "a table for dinner tonight"] * 2)

    def right(shipped: Shipped | None) -> float:
        return float(examine_set("some", tmp_path, (), 4, shipped)["right"])

    assert right(None) == 0.0
    assert right(lambda read: ("book a dinner table",) if read.name == "zorb" else ()) == 1.0
