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

from bench.retrieval.gate import (
    AMONG,
    SAMPLE,
    Sample,
    Size,
    adapt,
    as_shown,
    examine_both,
    fit,
    fit_logistic,
    floor,
    lower_least,
    merge_gates,
    promise,
    sampled,
    widen,
)
from foretool.retrieval import confidence
from foretool.retrieval.confidence import Gate, Logistic, Weights, judge
from foretool.retrieval.corpus import Shipped
from foretool.retrieval.ranking import Evidence, Ranked, Ranking
from foretool.storage.records import ToolId


def test_the_number_to_show_is_told_by_one_half_and_held_against_the_other() -> None:
    # Even places have ranks 1 to 4, odd ones 5 to 8; of each half's 20 the ceil(21 x .8) = 17th is 4, or 8.
    ranks = [1 + at // 2 % 4 + 4 * (at % 2) for at in range(40)]
    assert promise(ranks, 0.2) == {"show": [4, 8], "kept": [0.0, 1.0]}
    assert promise([1, None, 1, None], 0.2) == {"show": [None, None], "kept": [None, None]}


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
        evidence = Evidence(strength=2.0 if is_sharp else 0.8, entropy=0.5, coverage=0.5, terms=5)
        rank = 1 if is_sharp else draw.randrange(1, 21)
        found.append(Sample(Ranking(ranked, 20, (evidence,)), frozenset({rank})))
    return found


def test_a_fitted_gate_shows_fewer_tools_where_the_list_is_sharp(monkeypatch: pytest.MonkeyPatch) -> None:
    data = drawn_samples(400)
    weights = fit(data)
    monkeypatch.setattr(confidence, "shipped", lambda: Gate("", {"words": weights}))
    sharp, flat = (next(each for each in data if each.ranking.ranked[0].score == score) for score in (12.0, 3.0))
    assert judge(sharp.ranking).k < 12 < judge(flat.ranking).k
    found = adapt(data[0::2], data[1::2], {each.tool: Size(10, 4, 1) for each in data[0].ranking.ranked})
    assert found["held"] >= 0.85 and found["tokens"] == pytest.approx(10 * found["k"], abs=1)
    assert found["tokens_fixed"] == 120
    # Twelve as answers show them: at most three whole ones, five to eight in a line, four by name.
    assert 8 * 4 + 4 * 1 <= found["as_shown_fixed"] <= 3 * 10 + 5 * 4 + 4 * 1 < found["tokens_fixed"]
    assert found["held_most"] == 1.0


def test_k_is_widened_by_what_others_needed() -> None:
    def ranked_at(rank: int | None) -> Sample:
        return Sample(Ranking((), 0), frozenset() if rank is None else frozenset({rank}))

    needed = [ranked_at(rank) for rank in (1, 2, 3, 4, 5, 6, 7, 8, 20)]
    assert widen(needed, [4] * 9, 0.9) == 5.0  # the ninth of nine, for the tenth is the next query
    assert widen(needed, [4] * 9, 0.8) == 2.0
    assert widen(needed, [4] * 9, 0.95) == float("inf")  # nine say too little of one in twenty
    assert widen([*needed[:8], ranked_at(None)], [4] * 9, 0.9) == float("inf")


def test_tokens_are_those_of_the_forms_that_an_answer_of_this_level_has() -> None:
    ranking = Ranking(tuple(Ranked(ToolId(f"t{at}"), 1.0) for at in range(30)), 30)
    sizes = {each.tool: Size(100, 10, 1) for each in ranking.ranked}
    assert as_shown(ranking, "high", 2, sizes) == 200
    assert as_shown(ranking, "medium", 12, sizes) == 300 + 3 * 10 + 6
    assert as_shown(ranking, "low", 12, sizes) == 6 * 10 + 6
    assert as_shown(ranking, "none", 12, sizes) == 0


def test_what_was_fitted_for_other_encoders_stays() -> None:
    one, two, three = (Weights((), Logistic(float(bias), {})) for bias in range(3))
    kept = Gate("before", {"words": one, "old": one}, {"old": 0.1})
    new = Gate("now", {"words": two, "new": three}, {"new": 0.2})
    models = {"words": two, "old": one, "new": three}
    assert merge_gates(kept, new) == Gate("now", models, {"old": 0.1, "new": 0.2})


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
        plain, _ = examine_both("some", tmp_path, (), 4, shipped)
        return float(plain["right"])

    assert right(None) == 0.0
    assert right(lambda read: ("book a dinner table",) if read.name == "zorb" else ()) == 1.0
