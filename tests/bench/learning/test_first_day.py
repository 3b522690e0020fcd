"""The first day is compared task by task."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.learning.costs import Cost
from bench.learning.first_day import difference, main, per_task


def cost(hidden: int, *tasks: tuple[int, int, int]) -> Cost:
    found = Cost(calls=4, hidden=hidden)
    for discoveries, spent, read in tasks:
        found.discoveries += discoveries
        found.by_task.append((found.discoveries, spent, read))
    return found


def test_tasks_are_compared_in_pairs() -> None:
    before, after = cost(3, (1, 10, 100), (1, 20, 200)), cost(1, (0, 5, 90), (1, 15, 190))
    assert per_task(before) == [(1, 10, 100), (1, 10, 100)]
    told = difference(before, after)
    assert (told["hidden"], told["calls"]) == ([3, 1], 4)
    assert told["discoveries"][1] == -0.5 and told["read_tokens"][1] == -5.0


def test_without_data_it_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main([str(tmp_path / "none")])
    assert capsys.readouterr().out == "left out: FORETOOL_DATA names no folder\n"
