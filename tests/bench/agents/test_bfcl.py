"""Conversations of BFCL with a made-up package of that form: classes as servers, its checker, and what is counted."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bench.agents.bfcl import NAMES, ROOT, Bench, Checker, Outcome, figures, read_catalogue, read_conversations
from bench.agents.decisions import Decision, Turn, write_prompt
from bench.agents.results import read_outcomes
from bench.clients.messages import Json
from bench.clients.stdio import StdioClient
from bench.servers.bfcl import as_schema, as_text

pytestmark = pytest.mark.anyio

CONFIG = """
MULTI_TURN_FUNC_DOC_FILE_MAPPING = {
    name: "tools.json" for name in "GorillaFileSystem MathAPI MessageAPI TwitterAPI TicketAPI TradingBot TravelAPI"
    " VehicleControlAPI".split()
}
"""
UTILS = """
state = {}
def execute_multi_turn_func_call(func_call_list, initial_config, involved_classes, model_name, test_entry_id):
    assert model_name.isidentifier()  # the set's own code evaluates it
    lines = state.setdefault(model_name, list(initial_config["lines"]))
    def write(text):
        lines.append(text)
        return f"{len(lines)} lines"
    return [eval(call, {"write": write}) for call in func_call_list], {}
"""
CHECKER = """
def multi_turn_checker(made, truth, entry, category, model_name):
    assert model_name.isidentifier()
    return {"valid": all([step[0] for step in turn] == right for turn, right in zip(made, truth, strict=True))}
"""
TOOL = {
    "name": "write", "description": "Writes a line.",
    "parameters": {"type": "dict", "properties": {"text": {"type": "string"}, "at": {"type": "any"}}},
}  # fmt: skip


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A package of the set's form, with one conversation of two turns."""
    root = tmp_path_factory.mktemp("package")
    entry = {
        "id": "multi_turn_base_7", "initial_config": {"lines": ["old"]}, "involved_classes": ["GorillaFileSystem"],
        "question": [[{"role": "user", "content": say}] for say in ("Write one", "Write two")],
    }  # fmt: skip
    answer = {"id": entry["id"], "ground_truth": [["write(text='one')"], ["write(text='two')"]]}
    for name, text in {
        "constants/executable_backend_config.py": CONFIG,
        "eval_checker/multi_turn_eval/multi_turn_utils.py": UTILS,
        "eval_checker/multi_turn_eval/multi_turn_checker.py": CHECKER,
        "data/multi_turn_func_doc/tools.json": json.dumps(TOOL),
        "data/BFCL_v4_multi_turn_base.json": json.dumps(entry),
        "data/possible_answer/BFCL_v4_multi_turn_base.json": json.dumps(answer),
    }.items():
        path = root / "bfcl_eval" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    before, known = list(sys.path), set(sys.modules)
    yield root
    sys.path[:] = before
    for name in set(sys.modules) - known:
        if name.startswith("bfcl_eval"):
            del sys.modules[name]


class Scripted:
    """Decides what a script says, and keeps what it was told."""

    name = "scripted"
    seed = 0

    def __init__(self, *decisions: Decision) -> None:
        self._decisions = iter(decisions)
        self.prompts: list[str] = []

    def decide(
        self, instructions: str, tools: Sequence[Json], task: str, turns: Sequence[Turn] = (), *, is_brief: bool = False
    ) -> Decision:
        self.prompts.append(write_prompt(instructions, tools, task, turns))
        return next(self._decisions)


class Wired:
    """An arm that reaches one of the servers."""

    instructions = ""

    def __init__(self, client: StdioClient) -> None:
        self._client = client

    async def tools(self) -> list[Json]:
        return await self._client.tools()

    async def prompt(self, task: str) -> str:
        return task

    async def call(self, name: str, arguments: Json) -> str:
        result = await self._client.call(name.rpartition("__")[2], arguments)
        return str(result["content"][0]["text"])


def write(text: str) -> Decision:
    return Decision("files__write", {"text": text}, text=f"write {text}", read=10, cached=4)


async def hold(package: Path, folder: Path, driver: Scripted) -> None:
    """Hold the conversation, over the set's class as a server."""
    bench = Bench(folder, driver, Checker(package), most=6)
    (task,) = read_conversations(package, 150)
    bench.begin(task)
    command = [sys.executable, "-m", "bench.servers.bfcl", str(package), "GorillaFileSystem", str(folder)]
    client = await StdioClient.start(command, {"PYTHONPATH": str(ROOT)})
    try:
        await client.initialize()
        await bench.run("needed", Wired(client), task, 0)
    finally:
        await client.stop()
    assert Bench(folder, driver, Checker(package), most=6).is_done("needed", task, 0)


async def test_a_conversation_is_judged_turn_by_turn_by_what_reached_the_class(package: Path, tmp_path: Path) -> None:
    driver = Scripted(write("one"), Decision(answer="Done."), write("two"), Decision(answer="Done again."))
    await hold(package, tmp_path, driver)
    (outcome,) = read_outcomes(tmp_path, Outcome)
    assert (outcome.success, outcome.first, outcome.right, outcome.needed, outcome.wrong) == (True, True, 1.0, 1.0, 0)
    assert (outcome.turns, outcome.read, outcome.fresh) == (4, 20, 12)
    # The second message stands behind the answer to the first, and the class went on from its own state.
    assert driver.prompts[2].index("2 lines") < driver.prompts[2].index("<|im_start|>user\nWrite two<|im_end|>")
    assert "3 lines" in driver.prompts[3]


async def test_it_ends_with_the_first_turn_that_is_wrong(package: Path, tmp_path: Path) -> None:
    await hold(package, tmp_path, Scripted(write("none"), Decision(answer="Done.")))
    (outcome,) = read_outcomes(tmp_path, Outcome)
    assert (outcome.success, outcome.first, outcome.right, outcome.needed) == (False, False, 0.0, 1.0)
    (row,) = figures([outcome], "told")
    assert (row["method"], row["n"], row["first"]) == ("needed", 1, 0.0)


def test_definitions_and_calls_are_those_of_the_set_in_terms_of_mcp(package: Path) -> None:
    catalogue = read_catalogue(package)
    assert list(catalogue) == list(NAMES.values())
    assert catalogue["files"][0]["inputSchema"] == {
        "type": "object",
        "properties": {"text": {"type": "string"}, "at": {}},
    }
    assert as_schema({"type": "array", "items": {"type": "float"}}) == {"type": "array", "items": {"type": "number"}}
    assert as_text("cd", {"folder": "a 'b'", "deep": True}) == "cd(folder=\"a 'b'\", deep=True)"
    (task,) = read_conversations(package, 150)
    assert task.needs == (("files__write",), ("files__write",))
