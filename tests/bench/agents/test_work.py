"""A model at work, with a scripted stub in its place: what it is asked, what is counted, and where a run goes on."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import processes
from bench.agents import arms
from bench.agents.arms import ARMS, Direct, Foretool, OwnSearch, Servers, Stepped, named_tools
from bench.agents.decisions import Decision, Turn, grammar, read_decision, write_prompt
from bench.agents.drivers import Endpoint
from bench.agents.results import read_outcomes
from bench.agents.tasks import TASKS, Task, draw
from bench.agents.work import Bench, Outcome, figures, in_order, start_of, tasks_of
from bench.agents.world import World
from bench.clients.messages import Json
from bench.servers import loopback
from foretool.server.discovery.answer_text import NOT_DONE

pytestmark = pytest.mark.anyio
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not on PATH")
WRITE: Json = {"name": "files__write_file", "description": "Write a file", "inputSchema": {"type": "object"}}
MOVE: Json = {"name": "files__move_file", "description": "Move a file to another place", "inputSchema": {}}
NAMING: Json = {
    "name": "call_tool",
    "description": "Runs a tool. Some of them (a__{b, c} means a__b and a__c): files__{list_folder(path: string),"
    " read_file(path: string)}, time__now().",
}
WRITE_FILE = next(task for task in TASKS if task.name == "write-file")


class Scripted:
    """Decides what a script says."""

    name = "scripted"
    seed = 0

    def __init__(self, *decisions: Decision) -> None:
        self._decisions = iter(decisions)

    def decide(
        self, instructions: str, tools: Sequence[Json], task: str, turns: Sequence[Turn] = (), *, is_brief: bool = False
    ) -> Decision:
        return next(self._decisions)


class Disk:
    """An arm with one tool, which writes a file."""

    instructions = ""

    async def tools(self) -> list[Json]:
        return [WRITE]

    async def prompt(self, task: str) -> str:
        return task

    async def call(self, name: str, arguments: Json) -> str:
        return write(Path(arguments["path"]), arguments["content"])


def write(path: Path, text: str) -> str:
    """Write a file as the server of files does."""
    path.write_text(text, "utf-8")
    return "Written."


@pytest.fixture
def endpoint() -> Iterator[tuple[Endpoint, list[Json]]]:
    """A scripted endpoint on loopback and what it was asked: a call first, then an answer."""
    asked: list[Json] = []
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    replies: list[Json] = [{"content": None, "tool_calls": [call]}, {"content": "It is 3."}]

    class Stub(loopback.Handler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            asked[-1]["authorization"] = self.headers["authorization"]
            usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 5}}
            reply = {"choices": [{"message": replies[len(asked) - 1]}], "usage": usage}
            self.say(json.dumps(reply).encode(), "application/json")

    with loopback.serve(Stub) as url:
        yield Endpoint("some-model", f"{url}/v1/", "secret"), asked


def test_an_endpoint_is_given_the_list_and_what_was_called_before(endpoint: tuple[Endpoint, list[Json]]) -> None:
    model, asked = endpoint
    first = model.decide("Say little.", [WRITE], "Add one and two")
    second = model.decide("Say little.", [WRITE], "Add one and two", [Turn(first, "3")])
    assert (first.tool, first.arguments, first.read, first.cached, first.written) == ("add", {"a": 1}, 9, 5, 2)
    assert (second.tool, second.answer) == ("", "It is 3.")
    assert asked[0]["tools"][0]["function"]["name"] == "files__write_file"
    assert asked[0]["messages"][0]["content"].endswith("Say little.")
    assert [each["role"] for each in asked[1]["messages"]] == ["system", "user", "assistant", "tool"]
    assert asked[1]["authorization"] == "Bearer secret"


def test_a_prompt_begins_with_the_list_so_that_tasks_share_what_is_read_first() -> None:
    one, other = (write_prompt("Be brief.", [WRITE], task) for task in ("Do this", "Do that"))
    shared = one.partition("Do this")[0]
    assert other.startswith(shared)
    assert "files__write_file" in shared and "Be brief." in shared


@pytest.mark.parametrize(
    ("text", "is_brief", "expected"),
    [
        ('{"name": "a__b", "arguments": {"c": 1}}', False, ("a__b", {"c": 1}, "", "a__b")),
        ('{"name": "call_tool", "arguments": {"name": "a__b"', True, ("call_tool", {"name": "a__b"}, "", "a__b")),
        ('{"name": "call_tool", "arguments": {"name": "a__', True, ("call_tool", {"name": "a__"}, "", "a__")),
        ('{"name": "a__b"', True, ("a__b", {}, "", "a__b")),
        ('{"answer": "yes"}', False, ("", {}, "yes", "")),
        ('{"answer": "', True, ("", {}, "", "")),
        ('{"name": "a__b", "arguments": {"c": "cut', False, ("", {}, '{"name": "a__b", "arguments": {"c": "cut', "")),
    ],
)
def test_a_decision_is_read_as_it_was_written(text: str, is_brief: bool, expected: tuple[Any, ...]) -> None:
    said = read_decision(text, is_brief=is_brief)
    assert (said.tool, said.arguments, said.answer, said.meant) == expected


def test_the_grammar_names_the_listed_tools_and_lets_a_bridge_name_any_other() -> None:
    assert '"a__b" | "call_tool"' in grammar(["call_tool", "a__b"])
    brief = grammar(["call_tool", "a__b"], is_brief=True)
    assert 'tool ::= "a__b"\n' in brief
    assert 'bridge ::= "call_tool"\n' in brief
    assert "bridge" not in grammar(["a__b"], is_brief=True)


def test_both_halves_have_tasks_of_every_kind_and_none_in_common() -> None:
    working, closed = draw("working"), draw("closed")
    assert {task.name for task in working}.isdisjoint(task.name for task in closed)
    assert len(working) + len(closed) == len(TASKS) == len({task.name for task in TASKS})
    assert {task.kind for task in working} == {task.kind for task in closed} == {"plain", "vague", "steps", "none"}


def test_the_later_tasks_are_none_of_the_first_and_of_every_kind() -> None:
    later = tasks_of("later")
    assert {task.name for task in later}.isdisjoint(task.name for task in TASKS)
    assert {task.kind for task in later} == {"plain", "vague", "steps", "none"}
    assert len(later) + len(TASKS) >= 80


def test_a_paired_run_does_each_task_in_all_arms_before_the_next() -> None:
    tasks = draw("closed")
    paired = list(in_order(("foretool", "search"), 1, tasks, paired=True))
    assert [arm for arm, _, _ in paired] == ["foretool", "search"] * len(tasks)
    assert [task for _, _, task in paired[::2]] == [task for _, _, task in paired[1::2]] != tasks
    by_arm = list(in_order(("foretool", "search"), 1, tasks, paired=False))
    assert [task for _, _, task in by_arm] == [*tasks, *tasks]
    assert sorted(map(repr, paired)) == sorted(map(repr, by_arm))


def test_a_needed_tool_is_listed_named_or_hidden_at_first() -> None:
    assert named_tools([NAMING]) == {"files__list_folder", "files__read_file", "time__now"}

    def start(*names: str) -> str:
        task = Task("t", "steps", "", tuple((name,) for name in names), lambda world, answer: True)
        return start_of(task, [WRITE, NAMING])

    assert start("files__write_file") == "listed"
    assert start("files__write_file", "time__now") == "named"
    assert start("time__now", "files__move_file") == "hidden"


async def test_the_model_s_own_search_adds_what_it_finds() -> None:
    arm = OwnSearch(Servers({}, {"files": [{**MOVE, "name": "move_file"}], "mail": [{**WRITE, "name": "send"}]}))
    assert [tool["name"] for tool in await arm.tools()] == ["search_tools"]
    assert (
        await arm.call("search_tools", {"query": "move a file to another place"})
        == "Loaded: files__move_file, mail__send"
    )
    assert [tool["name"] for tool in await arm.tools()] == ["search_tools", "files__move_file", "mail__send"]
    told = OwnSearch(Servers({}, {"files": [{**MOVE, "name": "move_file"}]}), is_told=True)
    assert await told.call("search_tools", {"query": "move a file"}) == f"Loaded: files__move_file. {NOT_DONE}"


async def test_what_the_hook_prints_stands_behind_the_user_s_words() -> None:
    hook = [sys.executable, "-c", "import json, sys; print('may fit:', json.load(sys.stdin)['prompt'])"]
    client: Any = None
    assert await Foretool(client, "", hook).prompt("Rename a") == "Rename a\n\nmay fit: Rename a"
    assert await Foretool(client, "").prompt("Rename a") == "Rename a"


async def test_a_step_gives_a_prompt_and_tools_for_each_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"command": sys.executable, "args": ["-S", "-E", processes.ECHO, "--name", "files", "--count", "2"]}
    config = processes.write_config(tmp_path, {"files": entry}, encoder="none")
    monkeypatch.setattr(arms, "TYPING_S", 0.0)
    async with Stepped.start(config) as arm:
        assert (await arm.tools(), arm.instructions) == ([], "")
        task = await arm.prompt("Echo a text as files_echo does")
        listed = [tool["name"] for tool in await arm.tools()]
        assert "files__files_echo" in listed and listed[-1] == "discover_tools"
        assert "discover_tools" in arm.instructions and task.startswith("Echo")
        assert '"text": "hi"' in await arm.call("files__files_echo", {"text": "hi"})
        assert (await arm.call("files__none", {})).startswith("Error: Unknown tool")


async def test_a_server_that_takes_no_part_fails_every_call() -> None:
    arm = Direct(Servers({}, {"files": [MOVE]}), [MOVE])
    assert (await arm.call("files__move_file", {})).startswith("Error")


@needs_git
async def test_the_end_of_a_task_is_checked_and_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    path = str(world.files / "todo.txt")
    call = Decision("files__write_file", {"path": path, "content": "buy milk"}, read=100, cached=40, written=9)
    driver = Scripted(call, Decision(answer="Done."))
    bench = Bench(tmp_path, driver, world, "working")
    outcome = await bench.run(47, "all", Disk(), WRITE_FILE, 0)
    assert outcome.success and outcome.ended
    assert (outcome.at_first, outcome.needed, outcome.wrong, outcome.turns) == ("listed", 1.0, 0, 2)
    assert (outcome.read, outcome.fresh, outcome.written) == (100, 60, 9)
    assert read_outcomes(tmp_path, Outcome) == [outcome]
    again = Bench(tmp_path, driver, world, "working")
    assert again.is_done(47, "all", WRITE_FILE, 0)
    assert not again.is_done(47, "foretool", WRITE_FILE, 0)
    assert (tmp_path / "conversations" / "scripted-47-all-write-file-0.json").is_file()


@needs_git
async def test_a_model_that_says_that_it_is_done_has_not_succeeded(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Scripted(Decision(answer="Done, I wrote the file.")), World(tmp_path / "world"), "working")
    outcome = await bench.run(47, "all", Disk(), WRITE_FILE, 0)
    assert not outcome.success
    assert outcome.needed == 0.0


@needs_git
async def test_a_task_that_no_tool_serves_must_leave_the_world_as_it_was(tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    task = next(task for task in TASKS if task.kind == "none")
    wrote = Decision("files__write_file", {"path": str(world.files / "printed.txt"), "content": "printed"})
    answer = Decision(answer="I cannot print.")
    bench = Bench(tmp_path, Scripted(wrote, answer, answer), world, "working")
    assert not (await bench.run(47, "all", Disk(), task, 0)).success
    assert (await bench.run(47, "all", Disk(), task, 1)).success
    row = next(figures(read_outcomes(tmp_path, Outcome)))
    assert (row["n"], row["success"]) == (2, 0.5)


@needs_git
def test_the_world_is_the_same_after_every_reset(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.reset()
    before = world.state()
    (world.files / "more.txt").write_text("more", "utf-8")
    world.git("commit", "--quiet", "--message", "more")
    assert world.state() != before
    world.reset()
    assert world.state() == before


@needs_git
@pytest.mark.parametrize("task", [task for task in TASKS if task.kind != "none"], ids=lambda task: task.name)
def test_no_task_is_done_before_it_begins(tmp_path: Path, task: Task) -> None:
    world = World(tmp_path)
    world.reset()
    assert not task.check(world, "")


def test_every_arm_that_is_described_can_be_chosen() -> None:
    described = re.findall(r"^    ([a-z_]+) +\w", arms.__doc__ or "", re.MULTILINE)
    assert tuple(described) == ARMS
