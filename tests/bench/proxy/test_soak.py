"""The soak at its smallest."""

from __future__ import annotations

import json

import pytest
from requirements import requirement

from bench.proxy import soak


def test_a_steady_process_has_no_slope_and_a_growing_one_has_its_rate() -> None:
    samples = [{"calls": calls, "rss_mib": 30 + calls / 1000, "open_files": 7} for calls in (0, 1000, 2000, 3000)]
    found = soak.growth(samples, 3000)
    assert found["rss_mib"] == {"warm": 31.0, "end": 33.0, "most": 33.0, "per_100000_calls": 100.0}
    assert found["open_files"]["per_100000_calls"] == 0


@pytest.mark.slow
@requirement("http:concurrent")
def test_fifty_sessions_get_every_answer_once_while_calls_are_cancelled_and_connections_dropped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The small version of the soak; `python -m bench.proxy.soak` makes 100,000 calls."""
    options = ["--upstreams", "2", "--connections", "1", "--limit-s", "90", "--settle-s", "1"]
    soak.main(
        ["--calls", "1500", "--sessions", "50", "--cancels", "0.1", "--drops", "0.1", "--watches", "0.1", *options]
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["calls"], found["exit_status"]) == (1500, 0)
    trouble = ("wrong", "lost", "twice", "streams_that_ended")
    assert {key: found[key] for key in trouble} == dict.fromkeys(trouble, 0), (
        found["wrong_first"],
        found["lost_first"],
    )
    assert found["answered"] + found["resumed"] + found["cancelled"] + found["dropped"] == 1500
    assert min(found["resumed"], found["cancelled"], found["dropped"]) > 10
    kept = found["records"]
    assert (kept["called"], kept["kept"], kept["missing"], kept["twice"], kept["unknown"]) == (1500, 1500, 0, 0, 0)
    assert found["notifications"]["notifications/progress"] > 200
    assert (found["lists"], found["searches"]) == (3, 3)
    assert found["sessions"] == {"legacy": 25, "modern": 25}
    assert found["log_lines"] == 2  # which config, and where it is served
    assert {"rss_mib", "open_files", "threads", "tasks", "objects"} <= set(found["growth"])
