"""The arithmetic of the priors' benchmark, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

from bench.retrieval.priors import (
    Log,
    examine,
    examine_edges,
    fill,
    fit_first,
    hidden,
    hidden_interval,
    read_log,
    smallest,
)
from foretool.retrieval.document import Fields
from foretool.retrieval.priors import Priors
from foretool.storage.records import ToolId


def log_of(*calls: tuple[str, ...]) -> Log:
    """Ten servers, each with a tool that gets and two that wander."""
    tools = [
        Fields(ToolId(f"s{server}__{name}"), f"s{server}", name.split("_")[0], frozenset(), {"a": True}, frozenset())
        for server in range(10)
        for name in ("get_it", "wander_b", "wander_c")
    ]
    named = [tuple(ToolId(call) for call in each) for each in calls]
    return Log("toy", tools, {tool.id: 10 for tool in tools}, named)


def test_the_fit_prefers_the_deed_that_was_called() -> None:
    log = log_of(*[(f"s{server}__get_it",) for server in range(10)] * 5)
    weights = fit_first([log], 0.01)
    assert weights["deed:get"] > 0.5 > weights["deed:none"]
    assert fit_first([log], 10.0)["deed:get"] < 0.1


def test_hidden_calls_are_counted_over_all_tasks() -> None:
    log = log_of(("s0__get_it", "s1__get_it"), ("s0__wander_b",))
    listed = fill(log, lambda tools: [ToolId("s0__get_it"), ToolId("s9__wander_c"), ToolId("s1__get_it")], 20)
    assert listed == ["s0__get_it", "s9__wander_c"]
    assert hidden(log, listed) == pytest.approx(2 / 3)
    # Of two tasks drawn, the worst are twice the second, the best twice the first.
    assert hidden_interval(log, listed) == [0.5, 0.667, 1.0]
    assert hidden(log, fill(log, smallest(log), 10_000)) == 0.0
    assert hidden_interval(log, []) == [1.0, 1.0, 1.0]


def test_a_few_servers_hold_whole_servers_and_their_calls_alone() -> None:
    log = log_of(*[(f"s{server}__get_it", "s0__get_it") for server in range(10)])
    for some in log.some(7, 5):
        assert len(some.tools) == 9 and len(some.servers) == 3
        assert {tool for each in some.calls for tool in each} <= {tool.id for tool in some.tools}


def test_sure_edges_are_held_against_what_followed_and_what_came_before() -> None:
    give = Fields(ToolId("s__give"), "s", "give", frozenset(), {}, frozenset({"user id"}))
    take = Fields(ToolId("s__take"), "s", "take", frozenset(), {"user id": True}, frozenset())
    calls = [(give.id, take.id), (give.id, give.id, take.id), (take.id,), (give.id,)]
    row = examine_edges(Log("toy", [give, take], {}, calls))
    # Three calls of `give` have others after them: `take` is next after two of them. It was called three times.
    assert {key: row[key] for key in ("edges", "shown", "next", "followed", "needed", "preceded")} == {
        "edges": 1, "shown": 3, "next": 2, "followed": 3, "needed": 3, "preceded": 2,
    }  # fmt: skip


def test_a_set_is_read_and_examined(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    folder.mkdir()
    tools = [{"server": "s", "name": f"tool{each}", "description": "Does it"} for each in range(5)]
    tasks = [{"query": "q", "calls": ["tool1", "gone"]}, {"query": "q", "calls": ["gone"]}]
    (folder / "tools.jsonl").write_text("".join(json.dumps(each) + "\n" for each in tools))
    (folder / "dev.jsonl").write_text("".join(json.dumps(each) + "\n" for each in tasks))
    log = read_log(folder, "dev")
    assert log.calls == [("s/tool1",)]
    row = next(examine(log, Priors("", {}, 1.0), 10_000))
    assert (row["hidden"], row["listed"], row["calls"]) == ([0.0, 0.0, 0.0], 5, 1)
    assert next(examine(log, Priors("", {}, 1.0), 0))["hidden"] == [1.0, 1.0, 1.0]
