"""The counting of the benchmark of shell commands, by hand."""

from __future__ import annotations

import json

from bench.datasets import tool_of
from bench.retrieval.bypasses import FILE, examine
from bench.retrieval.pool import Pool

TOOLS = [
    tool_of("github", {"name": name, "description": "Works on GitHub", "inputSchema": {}})
    for name in ("list_pull_requests", "create_issue")
]


def test_a_wrong_tool_counts_against_both() -> None:
    served = {"gh pr list": "list_pull_requests", "gh issue create": "other", "gh pr view": "x"}
    bypasses = [[command, [f"github/{tool}"]] for command, tool in served.items()]
    held = {"bypasses": {"report": bypasses}, "unserved": {"report": ["ls", "cd x; gh pr list"]}}
    row = examine(held, "report", Pool(TOOLS, {}))
    assert (row["precision"], row["recall"], row["wrong"], row["missed"]) == (0.333, 0.333, 2, 2)


def test_the_file_has_what_it_promises() -> None:
    held = json.loads(FILE.read_text("utf-8"))
    assert sum(map(len, held["bypasses"].values())) == 60 and sum(map(len, held["unserved"].values())) == 200
    assert {tool.partition("/")[0] for part in held["bypasses"].values() for _, tools in part for tool in tools} <= set(
        held["servers"]
    )
