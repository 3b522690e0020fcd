"""The first decision on a list: what counts as asking, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from bench.agents.asking import Asked, ask_all, figures, kind_of, parser, place_of, read_asked
from bench.agents.catalogue import NEEDED
from bench.agents.decisions import Decision
from bench.clients.messages import Json

pytestmark = pytest.mark.anyio
RIGHT = ["files__list_folder"]


@pytest.mark.parametrize(
    ("decision", "kind"),
    [
        (Decision("files__list_folder"), "listed"),
        (Decision("files__read_file"), "other"),
        (Decision("call_tool", {"name": "files__list_folder"}), "bridged"),
        (Decision("call_tool", {"name": "files__list"}), "lost"),
        (Decision("discover_tools", {"task": "list"}), "asked"),
        (Decision(answer="You have two files."), "prose"),
    ],
)
def test_a_decision_leads_to_a_right_tool_or_away_from_it(decision: Decision, kind: str) -> None:
    assert kind_of(decision, RIGHT) == kind


def test_a_right_tool_is_listed_named_or_hidden() -> None:
    bridge = {"name": "call_tool", "description": "Runs a tool. Some of them: files__list_folder(path: string)."}
    assert place_of(RIGHT, [{"name": "files__list_folder"}]) == "listed"
    assert place_of(RIGHT, [bridge]) == "named"
    assert place_of(RIGHT, [{"name": "files__read_file"}]) == "hidden"


def test_the_figures_count_what_is_kept(tmp_path: Path) -> None:
    asked = Asked("m", "as installed", "working", 128, "a", "hidden", "asked", "discover_tools", "", False, 9, 1.0)
    other = msgspec.structs.replace(asked, wish="b", place="named", kind="lost", is_shown=True)
    (tmp_path / "decisions.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, (asked, other))))
    rows = {row["method"]: row for row in figures(read_asked(tmp_path))}
    assert (rows["as installed, all"]["n"], rows["as installed, all"]["leads"]) == (2, 0.5)
    assert (rows["as installed, hidden"]["leads"], rows["as installed, hidden"]["asked"]) == (1.0, 1)
    assert (rows["as installed, named"]["leads"], rows["as installed, named"]["shown"]) == (0.0, 1)


class Guessing:
    """A scripted model that makes up the name of a tool for every wish."""

    name = "scripted"

    def decide(self, instructions: str, tools: Sequence[Json], task: str, *rest: object, is_brief: bool) -> Decision:
        return Decision("call_tool", {"name": task.replace(" ", "_")})


@pytest.mark.slow
async def test_what_a_lost_call_is_answered_with_is_kept_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    calculate = {"name": "calculate", "description": "Computes an expression", "inputSchema": {"type": "object"}}
    for name, file in NEEDED.items():
        tools = [calculate] if name == "calculator" else []
        (tmp_path / f"{file}.json").write_text(json.dumps({"tools": tools}), "utf-8")
    given = ["--catalogs", str(tmp_path), "--size", "1", "--settings", '{"encoder": "none"}']
    arguments = parser().parse_args([str(tmp_path), *given])
    for _ in range(2):
        await ask_all(arguments, Guessing())
    (asked,) = read_asked(tmp_path)
    assert (asked.wish, asked.kind, asked.meant) == ("compute 3*7+2", "lost", "compute_3*7+2")
    assert asked.is_shown
