"""What the end-to-end benchmark asks a model and how it judges the answer; the model itself is a stand-in."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from bench.papers.dtdr import World
from bench.papers.dtdr_end_to_end import Answer, Asked, judged, over, prompt, steps
from foretool.learning.training.demonstrations import Demonstration, PredictionStep
from foretool.storage.records import Tool, ToolId


def tool(name: str, required: str, optional: str = "") -> Tool:
    properties = {each: {"type": "string"} for each in (*required.split(), *optional.split())}
    schema = {"type": "object", "properties": properties, "required": required.split()}
    raw = json.dumps({"name": name, "description": f"Does {name}.", "inputSchema": schema}).encode()
    return Tool(ToolId(name), "", name, raw, "")


TOOLS = (tool("find", "text"), tool("open", "path", "mode"), tool("close", "path"))
PLAN = Demonstration((0, 1, 2), ((), (0,), (1,)), "find it and open it")
WORLD = World("small", TOOLS, (PLAN,) * 30, (PLAN,), None, None)
ASKED = Asked(PLAN, PredictionStep((0,), (1,)))


def test_the_model_reads_its_tools_the_task_and_the_calls_so_far() -> None:
    asked = prompt(WORLD, ASKED, [(1, 0.75), (2, 0.2)])
    assert "- open(path: string, mode?: string): Does open. [0.75]\n- close(" in asked
    assert "Task: find it and open it\nCalls made so far, in order: find\n" in asked
    assert asked.endswith('<|im_start|>assistant\n{"name": "')
    assert "likely" not in prompt(WORLD, ASKED, [(1, None)])


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('open", "arguments": {"path": "a"}}', (1.0, 1.0, 1.0)),
        ('open", "arguments": {"path": "a", "mode": "r"}} and more', (1.0, 1.0, 1.0)),
        ('open", "arguments": {"mode": "r"}}', (1.0, 1.0, 0.0)),  # a required key is missing
        ('open", "arguments": {"path": "a", "x": 1}}', (1.0, 1.0, 0.0)),  # an unknown one
        ('open", "arguments": {"path": ', (1.0, 1.0, 0.0)),
        ('close", "arguments": {"path": "a"}}', (0.0, 1.0, 1.0)),  # not its turn
        ('delete", "arguments": {}}', (0.0, 1.0, None)),  # nobody showed it that one
    ],
)
def test_an_answer_is_right_if_it_names_an_acceptable_call(
    said: str, expected: tuple[float, float, float | None]
) -> None:
    assert judged(WORLD, ASKED, [(1, None), (2, None)], said) == expected


def test_what_was_not_shown_cannot_be_listed() -> None:
    assert judged(WORLD, ASKED, [(2, None)], 'close", "arguments": {"path": "a"}}')[1] == 0.0


def test_only_calls_are_asked_for_not_the_end() -> None:
    assert [asked.step.history for asked in sorted(steps(WORLD, 9), key=lambda each: len(each.step.history))] == [
        (), (0,), (0, 1),
    ]  # fmt: skip


def test_each_method_is_set_beside_the_full_list_on_the_same_steps() -> None:
    def model(asked: str) -> Answer:
        # Knows the plan, and reads only what it is shown.
        after = {"none": "find", "find": "open", "find, open": "close"}[
            asked.partition("in order: ")[2].partition("\n")[0]
        ]
        name = after if f"- {after}(" in asked else "find"
        return Answer(f'{name}", "arguments": {{}}}}', len(asked) // 4, 0.1)

    found = {row["method"]: row for row in over(WORLD, model, 9, ("full", "bm25", "dtdr"))}
    assert [row["n"] for row in found.values()] == [3, 3, 3]
    assert found["full"]["accuracy"] == 1.0 and found["full"]["listed"] == 1.0
    assert found["dtdr top 5, weighted hard mask"]["accuracy"] == 1.0
    assert found["bm25 top 5"]["accuracy"] < 1.0 and found["bm25 top 5"]["over_full"][0] < 0.0
