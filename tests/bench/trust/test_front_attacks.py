"""The attacks over HTTP: their rows, and one of each kind."""

from __future__ import annotations

import json

import pytest

from bench.trust import front_attacks


@pytest.mark.parametrize(("slowest", "peak", "holds"), [(50.0, 80.0, True), (150.0, 80.0, False), (50.0, 300.0, False)])
def test_a_row_says_whether_the_bars_hold(slowest: float, peak: float, holds: bool) -> None:
    client = front_attacks.Client(0, "")
    client.milliseconds = [1.0, 2.0, slowest]
    row = front_attacks.row_of("half-open", client, peak)
    assert (row["holds"], row["calls"], row["max_ms"]) == (holds, 3, slowest)


@pytest.mark.slow
def test_a_client_is_served_during_attacks(capsys: pytest.CaptureFixture[str]) -> None:
    front_attacks.main(["--only", "none,half-open,token-bodies", "--seconds", "0.5"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["attack"] for row in rows] == ["none", "half-open", "token-bodies"]
    assert all(row["calls"] > 0 and row["peak_rss_mib"] > 0 for row in rows)
