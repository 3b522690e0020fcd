"""The comparison over HTTP: its sums, and the servers it starts."""

from __future__ import annotations

import json
import os

import pytest

from bench.proxy import http_calls


def test_what_foretool_adds_is_a_share_of_what_the_aggregate_adds() -> None:
    found = []
    for name, p50 in (("upstream", 1.0), ("foretool", 1.5), ("sdk aggregate", 3.0)):
        target = http_calls.Target(name, "echo", 0, os.getpid())
        target.milliseconds, target.rates = [p50 - 0.1, p50, p50 + 9], [100.0, 300.0, 200.0]
        found.append(target)
    upstream, ours, aggregate = http_calls.rows("modern", found)
    assert "added_ms" not in upstream
    assert (ours["added_ms"], ours["added_ratio"], aggregate["added_ms"]) == (0.5, 0.25, 2.0)
    assert {row["calls_per_s"] for row in (upstream, ours, aggregate)} == {200}
    assert ours["p99_ms"] == 10.5


@pytest.mark.slow
def test_all_three_are_asked_in_both_eras(capsys: pytest.CaptureFixture[str]) -> None:
    http_calls.main(["--calls", "64", "--rounds", "2"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = ("upstream", "foretool", "sdk aggregate")
    assert [(row["era"], row["target"]) for row in rows] == [(era, name) for era in http_calls.ERAS for name in names]
    assert all(row["calls"] == 64 and row["p50_ms"] > 0 for row in rows)
