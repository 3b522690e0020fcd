"""The benchmark of the start at its smallest."""

from __future__ import annotations

import json

import pytest

from bench.proxy import startup


@pytest.mark.slow
def test_startup_of_quick_and_slow_upstreams(capsys: pytest.CaptureFixture[str]) -> None:
    startup.main(["--upstreams", "2", "--repeat", "1", "--slow-s", "0.5", "--kinds", "quick,slow"])
    quick, slow = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (quick["kind"], slow["kind"]) == ("quick", "slow")
    assert slow["upstream_alone_s"]["median"] > 0.5 and slow["warm_list_s"]["median"] > 0.0
    assert slow["call_s"]["median"] > 0.5
