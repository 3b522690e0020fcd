"""The simulation does what its agent is said to do, and its figures are counted as said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.learning import simulation
from bench.learning.costs import Cost
from bench.learning.simulation import Agent, Reader, sample, size, written


def test_the_smallest_value_that_a_schema_takes() -> None:
    schema = {
        "type": "object",
        "properties": {
            "text": {"type": "string"}, "kind": {"enum": ["b", "c"]}, "many": {"type": "array", "minItems": 1},
            "maybe": {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]}, "free": {"type": "string"},
        },
        "required": ["text", "kind", "many", "maybe"],
    }  # fmt: skip
    assert sample(schema) == {"text": "x", "kind": "b", "many": ["x"], "maybe": 3}
    assert sample({"type": ["null", "string"]}) is None
    assert sample({"properties": {}}) == {}


def test_the_agent_counts_what_it_reads_at_every_turn_and_learns_the_names_in_it() -> None:
    agent = Agent.__new__(Agent)
    agent.listed = {"a__x": {"name": "a__x"}}
    cost = Cost()
    reader = Reader(agent, ["a__x", "b__y", "c__z"], cost)
    listed = size(*written(list(agent.listed.values())))
    reader.read_list([{"name": "call_tool", "description": "Some of them: a__x(), d__w()."}, *agent.listed.values()])
    assert (reader.known, reader.told) == ({"a__x"}, {"a__x"})
    reader.known, reader.told = set(), set()
    reader.think()
    told, named = reader.read("1. b__y(path: string): does a thing\nfurther matches: c__z", "not-a-tool")
    assert (named, reader.known, cost.read_tokens) == ({"b__y"}, {"b__y"}, listed)
    assert reader.bare == {"a__x", "b__y", "c__z"}
    own = {"type": "text", "text": "c__z came from the server"}
    reader.read_appended({"content": [own, {"type": "text", "text": "Likely next: c__z()"}]})
    reader.read_appended({"content": [own]})
    assert (reader.told, cost.hint_tokens) == ({"c__z"}, size("Likely next: c__z()"))
    reader.think()
    assert cost.read_tokens == 2 * listed + told + cost.hint_tokens


def test_names_that_share_a_prefix_are_read_one_by_one() -> None:
    names = ["files__read", "files__stat", "web__get", "lines"]
    reader = Reader(Agent.__new__(Agent), names, Cost())
    _, named = reader.read("also (a__{b, c} means a__b and a__c): files__{read(text: string, lines: integer), stat()}")
    assert (named, reader.bare) == ({"files__read", "files__stat"}, {"files__read", "files__stat", "lines"})
    _, named = reader.read('1. web__get: gets\n   {"properties":{"files__{":{}}}\nfurther matches: files__{read, stat}')
    assert named == {"web__get"}


@pytest.mark.slow
def test_an_agent_before_a_real_proxy_with_learning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")
    data = tmp_path / "tiny"
    data.mkdir()
    tools = [
        {"server": "files", "name": name, "description": text, "input_schema": {"type": "object", "properties": {}}}
        for name, text in (("open", "Opens a file."), ("read", "Reads a file."), ("send", "Sends mail."))
    ]
    rows = [{"id": str(at), "query": "open and read a file", "calls": ["open", "read"]} for at in range(6)]
    (data / "tools.jsonl").write_text("\n".join(map(json.dumps, tools)))
    (data / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    plot = tmp_path / "plot.svg"
    options = ["--sets", "tiny", "--tasks", "6", "--block", "3", "--every", "1", "--encoder", "none", "--no-fill"]
    simulation.main([str(tmp_path), *options, "--policies", "growing", "--learning", "on", "--svg", str(plot)])
    first, last, run = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert facts(first) == (6, 0.5, 1.0)  # one discovery a task, by which the list gains the other tool as well
    assert first["learned"]["whole"] == "skipped"
    assert facts(last) == (6, 1.0, 0.0)  # the list of the next epoch names both, because they were used
    assert (run["falls_to"], run["tasks"]) == (2.0, 6)
    printed = tmp_path / "printed.txt"
    printed.write_text("\n".join(map(json.dumps, (first, last, run))))
    again = tmp_path / "again.svg"
    simulation.main(["--drawn", str(printed), "--svg", str(again), "--every", "1"])
    assert capsys.readouterr().out.startswith("| tiny | growing | on | 0.500 | 1.000 | x 2.00 |")
    assert again.read_text() == plot.read_text()
    assert plot.with_name("plot_tokens.svg").exists()


def facts(block: dict[str, Any]) -> tuple[int, float, float]:
    return block["calls"], block["hidden_share"], block["discoveries_per_task"]
