"""A proxy is measured beside an open page and beside the deletion of old records, in pairs."""

from __future__ import annotations

import time
from pathlib import Path

from bench.proxy.upkeep import rows
from bench.storage.ledger import write_ledger


def test_each_work_is_measured_in_pairs_with_the_proxy_alone(tmp_path: Path) -> None:
    source = write_ledger(tmp_path / "made", 100, 10, 80.0, time.time())
    found = rows(source, ("page", "retention"), pairs=1, calls=4)
    assert [row["work"] for row in found] == [
        "alone", "page", "page - alone, median", "alone", "retention", "retention - alone, median",
    ]  # fmt: skip
    assert all(float(row["call_p50_ms"]) > 0 for row in found if row["work"] in ("alone", "page", "retention"))
    assert {row["deleted"] for row in found if row["work"] in ("alone", "page")} == {0}
