"""The counting of the judge's benchmark, with a judge that knows and one that errs."""

from __future__ import annotations

from bench.datasets import tool_of
from bench.retrieval.judge import NONE, examine, know_all
from bench.retrieval.pool import Pool

KINDS = "red green blue grey pink gold teal plum lime rust sand snow iron oak pine fern moss clay wine rose mint sage"
NOTES = [
    tool_of("n", {"name": f"{kind}_note", "description": f"Keeps a {kind} note in the drawer.", "inputSchema": {}})
    for kind in KINDS.split()
]
MAILS = [
    tool_of("m", {"name": f"mail_{n}", "description": "Sends letters abroad.", "inputSchema": {}}) for n in range(40)
]


def test_a_judge_is_asked_where_the_gate_is_in_doubt_and_counts_for_better_or_worse() -> None:
    pool = Pool([*NOTES, *MAILS], {})
    asked = [("keep a red note", ["n/red_note"]), ("keep a blue note", ["n/green_note"]), ("keep a teal note", [])]
    knows = examine(pool, asked, know_all)
    assert (knows["tasks"], knows["unserved"], knows["asked"]) == (2, 1, [2, 1])
    assert (knows["first_without"], knows["first_with"], knows["false_without"], knows["false_with"]) == (1, 2, 1, 0)
    refuses = examine(pool, asked, lambda task, tools, right: NONE)
    assert (refuses["first_with"], refuses["false_with"]) == (0, 0)
