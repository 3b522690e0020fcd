"""The first decision on a list: what counts as asking, and what is kept."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.agents.asking import Asked, figures, kind_of, place_of, read_asked
from bench.agents.decisions import Decision

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
    asked = Asked("m", "as installed", "working", 128, "a", "hidden", "asked", "discover_tools", "", 9, 1.0)
    other = msgspec.structs.replace(asked, wish="b", place="named", kind="other")
    (tmp_path / "decisions.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, (asked, other))))
    rows = {row["method"]: row for row in figures(read_asked(tmp_path))}
    assert (rows["as installed, all"]["n"], rows["as installed, all"]["leads"]) == (2, 0.5)
    assert (rows["as installed, hidden"]["leads"], rows["as installed, hidden"]["asked"]) == (1.0, 1)
    assert (rows["as installed, named"]["leads"], rows["as installed, named"]["other"]) == (0.0, 1)
