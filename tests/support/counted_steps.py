"""Counts what SQLite does for each statement of a connection, so that a test can compare stores of two sizes."""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_VALUE = re.compile(
    r"'(?:[^']|'')*'|\bx'[0-9a-f]*'|-?\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b|-?\bInf\b|\bNULL\b", re.IGNORECASE
)


@dataclass
class Counted:
    """What was run while it was counted."""

    steps: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """By statement, with a question mark for each value: the most steps of SQLite's virtual machine that one run of it
    took. A step is about a row that was looked at, and depends on no clock."""
    whole: set[str] = field(default_factory=set)
    """The statements that count all rows of a table, which is one step however many there are."""

    def growth(self, larger: Counted) -> list[str]:
        """The statements that do more on a larger store, in words."""
        found = [
            f"{larger.steps[sql]:,} steps, {steps:,} with the smaller log: {sql}"
            for sql, steps in self.steps.items()
            if larger.steps[sql] > 1.3 * steps + 150
        ]
        found += [f"counts all rows: {sql}" for sql in sorted(larger.whole)]
        # What runs on the larger store alone has nothing to be compared with, so it has to be small.
        only = {sql: steps for sql, steps in larger.steps.items() if sql not in self.steps and steps > 2000}
        return found + [f"{steps:,} steps, with the larger log alone: {sql}" for sql, steps in only.items()]


@contextmanager
def count_steps(connection: sqlite3.Connection) -> Iterator[Counted]:
    """Count what a connection does meanwhile."""
    counted, current, run = Counted(), "", 0

    def begin(sql: str) -> None:
        nonlocal current, run
        if sql.startswith("--"):  # a trigger: part of the statement that runs
            return
        current, run = " ".join(_VALUE.sub("?", sql).split()), 0
        counted.steps.setdefault(current, 0)

    def step() -> int:
        nonlocal run
        run += 1
        if current:
            counted.steps[current] = max(counted.steps[current], run)
        return 0

    # Each statement makes SQLite read the schema if that has not happened on this connection, which takes many steps.
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    connection.set_trace_callback(begin)
    connection.set_progress_handler(step, 1)
    try:
        yield counted
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_trace_callback(None)
    for sql in counted.steps:
        if sql.split(" ")[0] in ("SELECT", "WITH", "UPDATE", "DELETE", "INSERT"):
            plan = connection.execute(f"EXPLAIN {sql}", (None,) * sql.count("?")).fetchall()
            if any(opcode == "Count" for _, opcode, *_ in plan):
                counted.whole.add(sql)
