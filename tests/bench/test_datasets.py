"""Data sets are read as they are published."""

from __future__ import annotations

import json
from pathlib import Path

from bench.datasets import opening_words, place_by_name, read_catalogs, read_rows, read_tasks, read_tools, tool_from_row


def test_queries_without_a_known_tool_are_left_out(folder: Path) -> None:
    tasks = read_tasks(folder / "dev.jsonl", read_tools(folder))
    assert [task.gold for task in tasks] == [(frozenset({"github/create_issue"}),), (frozenset({"whois"}),)]


def test_rows_are_read_plain_or_gzipped(folder: Path) -> None:
    assert [row["id"] for row in read_rows(folder / "dev.jsonl")] == ["1", "2", "3"]
    assert [row["name"] for row in read_rows(folder / "tools.jsonl")] == ["create_issue", "create_issue", "whois"]


def test_of_several_tools_with_one_name_the_first_has_the_place(folder: Path) -> None:
    assert place_by_name(read_tools(folder)) == {"create_issue": 0, "whois": 2}


def test_a_row_becomes_a_tool_with_further_members() -> None:
    tool = tool_from_row({"server": None, "name": "whois"}, outputSchema={})
    assert (tool.id, tool.upstream) == ("whois", "")
    assert json.loads(tool.definition) == {"name": "whois", "description": "", "inputSchema": {}, "outputSchema": {}}


def test_catalogs_come_in_the_order_of_their_files(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"server": name, "tools": []}))
    assert read_catalogs(tmp_path) == [("a", []), ("b", [])]
    assert read_catalogs(tmp_path, 1) == [("a", [])]


def test_a_query_is_the_first_sentence_of_a_description_and_at_most_twelve_words() -> None:
    tools = [{"name": "a", "description": "Sends mail. Needs a key."}, {"name": "b"}, {"description": "w " * 20}]
    assert opening_words(tools) == ["Sends mail", "b", " ".join("w" * 12)]
