"""What tasks of several steps cost by arm, and that every script can be run as a series."""

from __future__ import annotations

from bench.agents.series import Turn, cost, find_roots, scripts
from foretool.server.calls.json_paths import read_path


def test_each_turn_reads_all_that_came_before() -> None:
    assert cost(100, [Turn(10, 5), Turn(20, 0)]) == {"turns": 3, "read": 100 + 115 + 135, "fresh": 135, "written": 30}


def test_thirty_scripts_use_results_of_earlier_calls_alone() -> None:
    written = scripts("/files", "/repository")
    assert len(written) == len({each.task for each in written}) == 30
    for script in written:
        assert len(script.calls) <= 20
        for number, each in enumerate(script.calls, 1):
            assert all(1 <= root < number for root in find_roots(each))
        assert all(1 <= read_path(path).root <= len(script.calls) for path in script.wanted)
