"""The trial of ways to record gives each of them a row, compared with the file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from postgres import SKIPPED, new_schema

from bench.fleet.recording import run
from bench.processes import installed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_way_to_record_has_a_row(tmp_path: Path) -> None:
    address = new_schema()
    if address is None:
        pytest.skip(SKIPPED)
    rows = asyncio.run(run(tmp_path, installed(None), {"PostgreSQL": address}, 3, 1))
    assert [row["where"] for row in rows] == ["SQLite", "PostgreSQL, before", "PostgreSQL, behind"]
    assert rows[0]["added_ms"] == rows[0]["added_p5_ms"] == 0 and all(row["calls_per_s"] > 0 for row in rows)
