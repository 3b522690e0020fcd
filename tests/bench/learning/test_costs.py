"""The figures of a simulation are counted as said, and compared in pairs of the same tasks."""

from __future__ import annotations

from typing import Any

from bench.learning.costs import Cost, block_of, compare, comparison_table, ratio, summary, table
from bench.learning.simulation import comparisons


def test_the_figures_of_a_block_are_by_task() -> None:
    cost = Cost(4, 1, 1, 1, 0, 400, 0, 100)
    cost.read(400, 0)
    cost.read(400, 100)
    cost.end_task()
    cost.calls, cost.hidden, cost.discoveries, cost.hinted = 10, 4, 3, 1
    cost.list_tokens, cost.grown_tokens, cost.answer_tokens = 1000, 200, 300
    cost.hook_tokens, cost.hint_tokens, cost.at_first, cost.by_name = 60, 40, 2, 1
    cost.read(600, 500)
    cost.end_task()
    assert block_of(cost, 2) == {
        "tasks": 2, "calls": 10, "hidden": 4, "hidden_share": 0.4, "hidden_per_task": 2.0,
        "discoveries_per_task": 1.5, "at_first_per_task": 1.0, "by_name_per_task": 0.5, "not_found_share": 0.333,
        "hinted_per_task": 0.5,
        "list_tokens": 500, "listed_tokens": 600, "answer_tokens": 150, "hook_tokens": 30, "hint_tokens": 20,
        "tokens_per_task": 800, "read_per_task": 1000, "each": [[1, 500, 900], [2, 1100, 1100]],
    }  # fmt: skip


def test_a_run_is_summed_up_by_its_tasks_before_the_first_epoch_and_as_many_at_the_end() -> None:
    def block(calls: int, hidden: int, tasks: int, done: int) -> dict[str, Any]:
        cost = Cost(calls, hidden, hidden, list_tokens=100 * tasks, grown_tokens=100 * hidden)
        return {"set": "s", "policy": "frozen", "learning": "on", "done": done, **block_of(cost, tasks)}

    blocks = [block(10, 8, 2, 2), block(30, 8, 6, 8), block(10, 1, 2, 10), block(10, 0, 2, 12), block(30, 4, 6, 18)]
    told = summary(blocks, 2)
    assert (told["tasks"], told["tasks_first"], told["tasks_last"]) == (18, 8, 8)
    # 16 of 40 calls, 4 of 40; 21 of 90 in all, 5 of 50 after the first two blocks.
    assert (told["hidden_share_first"], told["hidden_share_last"], told["falls_to"]) == (0.4, 0.1, 0.25)
    assert (told["hidden_share"], told["hidden_share_after_first"]) == (0.2333, 0.1)
    # 8 hidden calls in 2 tasks, 8 in 6.
    assert (told["discoveries_first"], told["listed_tokens_first"], told["listed_tokens_last"]) == (2.0, 300, 150)
    assert next(table([told])) == (
        "| s | frozen | on | 0.400 | 0.100 | x 0.25 | 0.100 | 2.00 -> 0.50 | 300 -> 150 | 300 -> 150 | 0 -> 0 |"
    )
    alone = summary(blocks[:1], 2)
    assert (alone["hidden_share_first"], alone["hidden_share_last"], alone["falls_to"]) == (0.8, 0.8, 1.0)


def test_learning_is_compared_in_the_same_tasks() -> None:
    def block(discoveries: list[int], learning: str) -> dict[str, Any]:
        cost = Cost(calls=1)
        for each in discoveries:
            cost.discoveries += each
            cost.list_tokens += 100
            cost.read(200, 0)
            cost.end_task()
        return {"set": "s", "policy": "frozen", "learning": learning, "done": 2, **block_of(cost, len(discoveries))}

    off = [block([1, 1], "off"), block([2, 2], "off"), block([2, 2], "off")]
    on = [block([1, 1], "on"), block([2, 2], "on"), block([1, 1], "on")]
    last, later = compare([(off, on)], 1)
    assert (last["part"], last["tasks"], later["tasks"]) == ("last", 2, 4)
    assert last["discoveries"] == {"off": 2.0, "on": 1.0, "ratio": 0.5, "interval": [0.5, 0.5]}
    assert (later["discoveries"]["ratio"], later["tokens"]["ratio"], later["read"]["on"]) == (0.75, 1.0, 200.0)
    assert next(comparison_table([last])) == (
        "| s | frozen | off -> on | last | 2.00 -> 1.00 | x 0.50 (0.50 to 0.50) | 100 -> 100 | x 1.00 (1.00 to 1.00) |"
        " 200 -> 200 | x 1.00 (1.00 to 1.00) |"
    )
    # Runs of an earlier version have no figures by task.
    assert list(compare([([{**off[0], "each": []}], on[:1])], 1)) == []


def test_several_orders_of_the_tasks_are_compared_together() -> None:
    def block(discoveries: int, learning: str, seed: int) -> dict[str, Any]:
        cost = Cost(calls=1, discoveries=discoveries)
        cost.end_task()
        about = {"set": "s", "policy": "frozen", "learning": learning, "seed": seed, "done": 1}
        return {**about, **block_of(cost, 1)}

    runs = [
        [block(9, learning, seed), block(end, learning, seed)]
        for learning, ends in (("off", (4, 2)), ("on", (1, 2)))
        for seed, end in enumerate(ends)
    ]
    last, _ = comparisons(runs, 1)
    assert (last["orders"], last["tasks"]) == (2, 2)
    assert (last["discoveries"]["off"], last["discoveries"]["on"], last["discoveries"]["ratio"]) == (3.0, 1.5, 0.5)
    # An order that only one side has is in no pair.
    assert next(comparisons(runs[:3], 1))["orders"] == 1


def test_a_ratio_to_nothing_is_not_given() -> None:
    assert ratio([(0.0, 1.0)]) == {"off": 0.0, "on": 1.0, "ratio": None, "interval": None}
