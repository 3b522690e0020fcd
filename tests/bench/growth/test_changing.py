"""The benchmark of servers that change their lists all the time."""

import sys
from pathlib import Path

import pytest

from bench.growth import changing

pytestmark = pytest.mark.slow


@pytest.mark.skipif(sys.platform != "linux", reason="reads the processor time of one thread, as Linux has it")
def test_two_servers_that_change_are_measured(tmp_path: Path) -> None:
    ((size, row),) = changing.rows([2], tools=3, seconds=3.0)
    assert size == 2
    assert row["pings"] > 10
    assert 0.0 < row["ping p50 cpu ms"] <= row["ping p99 cpu ms"] <= row["longest ping cpu ms"]
    assert row["versions kept"] > 6  # two of three definitions have changed at least once
