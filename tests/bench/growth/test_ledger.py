"""The log that is written for measuring is one that a store reads."""

from pathlib import Path

from bench.growth.ledger import write_log
from foretool.server.recording.calibration import discovery_outcomes
from foretool.storage.opening import open_store


def test_a_written_log_holds_calls_that_follow_discoveries(tmp_path: Path) -> None:
    write_log(tmp_path / "log.db", 600, [("s0__t0", "s0"), ("s1__t0", "s1")])
    with open_store(tmp_path / "log.db") as store:
        found = store.statistics()
        assert (found.calls, found.discoveries, found.misses) == (600, 100, 20)
        assert len(discovery_outcomes(store.discoveries)) == 100
        assert len(store.tasks.latest(5)) == 5
