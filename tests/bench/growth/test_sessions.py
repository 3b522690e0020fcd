"""Sessions that stay open are measured after each has read its answer whole."""

import pytest

from bench.growth import sessions


def test_each_session_reads_a_whole_answer_and_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SETTLE_S", 0.1)
    # Large enough for several ticks of the clock that counts processor time, which are hundredths of a second.
    ((size, row),) = sessions.rows([2], mb=8)
    assert size == 2
    assert row["peak MiB"] > 8.0, "an answer went through the proxy"
    assert row["cpu s a session"] > 0.0
