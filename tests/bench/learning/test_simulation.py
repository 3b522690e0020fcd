"""The simulation does what its agent is said to do, and its figures are counted as said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.learning import simulation
from bench.learning.simulation import Cost, block_of, sample, summary, table


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


def test_the_figures_of_a_block_are_by_task() -> None:
    cost = Cost(10, 4, 3, 1, 1, 1000, 200, 300)
    assert block_of(cost, 2) == {
        "tasks": 2, "calls": 10, "hidden": 4, "hidden_share": 0.4, "discoveries_per_task": 1.5,
        "not_found_share": 0.333, "hinted_per_task": 0.5,
        "list_tokens": 500, "listed_tokens": 600, "tokens_per_task": 750,
    }  # fmt: skip


def test_a_run_is_summed_up_by_its_tasks_before_the_first_epoch_and_as_many_at_the_end() -> None:
    def block(calls: int, hidden: int, tasks: int, done: int) -> dict[str, Any]:
        cost = Cost(calls, hidden, hidden, 0, 0, 100 * tasks, 100 * hidden, 0)
        return {"set": "s", "policy": "frozen", "learning": True, "done": done, **block_of(cost, tasks)}

    blocks = [block(10, 8, 2, 2), block(30, 8, 6, 8), block(10, 1, 2, 10), block(10, 0, 2, 12), block(30, 4, 6, 18)]
    told = summary(blocks, 2)
    assert (told["tasks"], told["tasks_first"], told["tasks_last"]) == (18, 8, 8)
    # 16 of 40 calls, 4 of 40; 21 of 90 in all, 5 of 50 after the first two blocks.
    assert (told["hidden_share_first"], told["hidden_share_last"], told["falls_to"]) == (0.4, 0.1, 0.25)
    assert (told["hidden_share"], told["hidden_share_after_first"]) == (0.2333, 0.1)
    # 8 hidden calls in 2 tasks, 8 in 6.
    assert (told["discoveries_first"], told["listed_tokens_first"], told["listed_tokens_last"]) == (2.0, 300, 150)
    assert next(table([told])) == (
        "| s | frozen | on | 0.400 | 0.100 | x 0.25 | 0.100 | 2.00 -> 0.50 | 300 -> 150 | 300 -> 150 |"
    )
    alone = summary(blocks[:1], 2)
    assert (alone["hidden_share_first"], alone["hidden_share_last"], alone["falls_to"]) == (0.8, 0.8, 1.0)


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
    options = ["--sets", "tiny", "--tasks", "6", "--block", "3", "--every", "1", "--encoder", "none"]
    simulation.main([str(tmp_path), *options, "--policies", "growing", "--learning", "on", "--svg", str(plot)])
    first, last, run = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert facts(first) == (6, 0.5, 1.0)  # one discovery a task, by which the list gains the other tool as well
    assert first["learned"]["prior"] == "skipped"
    assert facts(last) == (6, 0.0, 0.0)  # usage alone has put both into the list of the next epoch
    assert (run["falls_to"], run["tasks"]) == (0.0, 6)
    printed = tmp_path / "printed.txt"
    printed.write_text("\n".join(map(json.dumps, (first, last, run))))
    again = tmp_path / "again.svg"
    simulation.main(["--drawn", str(printed), "--svg", str(again), "--every", "1"])
    assert capsys.readouterr().out.startswith("| tiny | growing | on | 0.500 | 0.000 | x 0.00 |")
    assert again.read_text() == plot.read_text()
    assert plot.with_name("plot_tokens.svg").exists()


def facts(block: dict[str, Any]) -> tuple[int, float, float]:
    return block["calls"], block["hidden_share"], block["discoveries_per_task"]
