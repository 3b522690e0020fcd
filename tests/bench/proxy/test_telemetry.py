"""What telemetry costs a call."""

from __future__ import annotations

import json

import pytest

from bench.proxy import telemetry

pytestmark = pytest.mark.slow


def test_each_way_is_measured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")  # put back at the end
    telemetry.main(["--calls", "20", "--rounds", "1"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["telemetry"] for row in rows] == list(telemetry.WAYS)
    assert all(row["ms"] > 0 for row in rows)
