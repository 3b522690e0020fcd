"""The arithmetic of the gate's benchmark, by hand, and one run over a small set."""

from __future__ import annotations

import json
import random
from math import exp
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

from tiny_model import write_model

from bench.retrieval.gate import Sample, auc, beside, fit, floor, promise, sampled
from bench.retrieval.ranking import main as retrieval
from foretool.retrieval.confidence import Gate, Logistic


def test_auc_by_hand() -> None:
    # Of the 2 x 3 pairs (right, wrong): .9 beats all three, .4 beats .1, equals .4, loses to .5.
    assert auc([0.9, 0.4], [0.1, 0.4, 0.5]) == pytest.approx((3 + 1 + 0.5) / 6)


def test_the_number_to_show_is_told_by_one_half_and_held_against_the_other() -> None:
    # Even places have ranks 1 to 4, odd ones 5 to 8; of each half's 20 the ceil(21 x .8) = 17th is 4, or 8.
    ranks = [1 + at // 2 % 4 + 4 * (at % 2) for at in range(40)]
    assert promise(ranks, 0.2) == {"show": [4, 8], "kept": [0.0, 1.0]}
    assert promise([1, None, 1, None], 0.2) == {"show": [None, None], "kept": [None, None]}


def test_a_sample_is_the_same_every_time_and_not_the_first_of_a_sorted_file() -> None:
    drawn = sampled(list(range(1000)))
    assert drawn == sampled(list(range(1000))) and len(drawn) == 400 and max(drawn) > 900
    assert sorted(sampled([3, 1, 2])) == [1, 2, 3]


def test_a_perfect_gate_has_a_floor_that_falls_with_the_number_of_queries() -> None:
    assert floor([0.5] * 20) > floor([0.5] * 2000) > 0.0


def test_the_fit_finds_the_weights_that_made_the_data() -> None:
    draw = random.Random(1)
    data = []
    for _ in range(6000):
        x, y = draw.gauss(2, 1), draw.gauss(0, 3)
        data.append(Sample({"x": x, "y": y}, float(draw.random() < 1 / (1 + exp(-(1.5 * x - 3))))))
    model = fit(data, ["x", "y"])
    assert model.weights["x"] == pytest.approx(1.4, abs=0.2)
    assert model.weights["y"] == pytest.approx(0.0, abs=0.05)


def test_what_was_fitted_for_other_encoders_stays() -> None:
    kept = Gate("before", {"": Logistic(0.0, {}), "old": Logistic(1.0, {})}, {"old": 0.1})
    new = Gate("now", {"": Logistic(2.0, {}), "new": Logistic(3.0, {})}, {"new": 0.2})
    models = {"": Logistic(0.0, {}), "old": Logistic(1.0, {}), "new": Logistic(3.0, {})}
    assert beside(kept, new) == Gate("now", models, {"old": 0.1, "new": 0.2})


def test_encoders_take_part_in_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    tools = [{"name": f"{verb}_{noun}", "description": "", "inputSchema": {"type": "object"}}
             for verb in ("open", "report") for noun in ("issue", "page", "bug")]  # fmt: skip
    data = {"servers": {"s0": tools}, "queries": [{"query": "open a page", "gold": ["open_page"]}]}
    (tmp_path / "set.json").write_text(json.dumps(data))
    folder = write_model(tmp_path / "tiny")
    retrieval([
        str(tmp_path / "set.json"), "--no-servers", "--encoder", str(folder), "--vectors", str(tmp_path / "v.sqlite3"),
        "--methods", "bm25,dense,light,hybrid,served", "--json",
    ])  # fmt: skip
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["method"] for row in rows] == ["bm25", "dense", "light", "hybrid", "served", "gate"]
    assert all(row["encoders"] == "tiny" for row in rows)
    assert rows[3]["r@1"] == rows[4]["r@1"] == 1.0
    assert rows[3]["over_bm25"]["r@1"] == [0.0, 0.0, 0.0] and "over_light" in rows[3]
    with pytest.raises(SystemExit, match="dense needs an encoder"):
        retrieval([str(tmp_path / "set.json"), "--encoder", "none", "--methods", "dense"])
