"""Each way to fill a budget, on a small set."""

from __future__ import annotations

from bench.datasets import Task, tool_of
from bench.papers import itr
from bench.retrieval.pool import Pool
from foretool.storage.records import ToolId


def pool() -> tuple[Pool, list[Task]]:
    about = {"send": "Sends a letter", "read": "Reads a letter", "add": "Adds two numbers"}
    tools = [tool_of("s", {"name": name, "description": text}) for name, text in about.items()]
    task = Task("send the letter", (frozenset({ToolId("s/send")}),))
    return Pool(tools, {}), [task]


def test_each_way_fills_its_budget() -> None:
    held, tasks = pool()
    sizes = {tool.id: 300 for tool in held.tools}
    rows = list(itr.selections("small", held, tasks, sizes, 300))
    assert [row["method"] for row in rows[::4]] == list(itr.WAYS)
    by = {(row["method"], row["budget"]): row for row in rows}
    assert (by["itr", 500]["recall"], by["itr", 500]["tools"], by["itr", 500]["tokens"]) == (1.0, 1.0, 300)
    assert by["itr", 2000]["tools"] == 2.0
    assert by["served", 500]["recall"] == 1.0
