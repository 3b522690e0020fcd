"""What the benchmark of PORTS counts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.papers.ports_set import World, examples_of_row, gains, hits, ranks, read_world, recalls
from foretool.learning.training.ports_trainer import Example


def written(folder: Path) -> Path:
    tools = [
        {"name": name, "description": name, "seen_in_training": name != "maps"} for name in ("dice", "news", "maps")
    ]
    train = [{"query": "roll", "calls": ["dice"]}, {"query": "read", "calls": ["news"]}, {"query": "x", "calls": ["?"]}]
    dev = [{"query": "where", "calls": ["maps"]}, {"query": "y", "calls": ["?"]}]
    for name, rows in (("tools", tools), ("train", train), ("dev", dev)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return folder


def test_a_set_has_its_unseen_tools_as_the_test_pool_and_drops_what_is_not_in_its_catalogue(tmp_path: Path) -> None:
    world = read_world(written(tmp_path), "dev.jsonl")
    assert (list(world.queries), list(world.gold)) == (["where"], [2])
    assert sorted(world.examples, key=lambda each: each.tool) == [Example("roll", 0), Example("read", 1)]
    assert {name: list(pool) for name, pool in world.pools.items()} == {"all": [0, 1, 2], "test": [2]}


def test_a_query_of_several_tools_is_one_for_each_and_carries_the_calls_of_the_set() -> None:
    place = {"dice": 0, "news": 1}
    several = {"query": "both", "calls": ["news", "dice", "news", "?"], "args": [{"of": "Rome"}, {}, {"of": "x"}, {}]}
    assert list(examples_of_row(several, place)) == [
        Example("both", 1, (0,), 'news(of="Rome")'),
        Example("both", 0, (1,), "dice()"),
    ]
    (written_out,) = examples_of_row({"query": "roll", "calls": ["dice"], "answer": "dice(6)"}, place)
    assert written_out.call == "dice(6)"
    (bare,) = examples_of_row({"query": "roll", "calls": ["dice"]}, place)
    assert bare.call == "", "the name alone is asked about"


def test_a_query_is_hit_where_its_tool_is_among_the_first_of_the_pool() -> None:
    world = World("toy", (), (), ("a", "b"), (0, 3), {})
    scores = np.asarray([[0.1, 0.9, 0.8, 0.7], [0.9, 0.1, 0.2, 0.8]], np.float32)
    assert hits(ranks(scores, world, range(4))) == {1: [0.0, 0.0], 2: [0.0, 1.0], 3: [0.0, 1.0]}
    assert hits(ranks(scores, world, [0, 3])) == {1: [0.0, 0.0], 2: [1.0, 1.0], 3: [1.0, 1.0]}
    found = recalls(hits(ranks(scores, world, [0, 3])))
    assert {key: found[key] for key in ("r@1", "r@2", "r@3")} == {"r@1": 0.0, "r@2": 1.0, "r@3": 1.0}
    assert found["r@1_interval"] == [0.0, 0.0]


def test_the_gain_of_a_rank_falls_with_its_logarithm() -> None:
    assert gains([1, 2, 3, 0]) == {
        "ndcg@1": 0.25,
        "ndcg@3": round((1 + 1 / np.log2(3) + 0.5) / 4, 4),
        "ndcg@5": round((1 + 1 / np.log2(3) + 0.5) / 4, 4),
    }
    assert gains([5])["ndcg@3"] == 0.0 and gains([5])["ndcg@5"] == round(1 / np.log2(6), 4)


@pytest.mark.parametrize("pool", [[0], [0, 3]])
def test_a_small_pool_is_no_error(pool: list[int]) -> None:
    world = World("toy", (), (), ("a",), (0,), {})
    assert hits(ranks(np.ones((1, 4), np.float32), world, pool))[1] == [1.0]


def test_a_pool_that_is_all_tools_is_ranked_once(tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "all.jsonl").write_text(
        "".join(json.dumps({"query": name, "calls": [name]}) + "\n" for name in ("dice", "news", "maps")), "utf-8"
    )
    tools = [{"name": name, "description": name} for name in ("dice", "news", "maps")]
    (folder / "tools.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tools), "utf-8")
    assert list(read_world(folder, "all.jsonl").pools) == ["all"]
    assert read_world(folder, "dev.jsonl").pools["test"] == [2]


def test_queries_whose_gold_does_not_fit_are_left_out_once_more(tmp_path: Path) -> None:
    folder = written(tmp_path)
    asked = [
        {"query": "roll", "calls": ["dice"], "scope": "relevance"},
        {"query": "nothing", "calls": []},
        {"query": "read", "calls": ["news"], "scope": "simple"},
    ]
    (folder / "scopes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked), "utf-8")
    world = read_world(folder, "scopes.jsonl")
    assert (list(world.queries), world.misfits) == (["roll", "read"], frozenset({0}))
    found = recalls({1: [0.0, 1.0], 2: [1.0, 1.0], 3: [1.0, 1.0]}, world.misfits)
    assert {key: found[key] for key in ("r@1", "r@1_fitting", "r@2_fitting")} == {
        "r@1": 0.5,
        "r@1_fitting": 1.0,
        "r@2_fitting": 1.0,
    }
