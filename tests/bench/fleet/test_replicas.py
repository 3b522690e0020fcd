"""The trial of replicas counts what went wrong."""

from __future__ import annotations

from collections import Counter

from bench.fleet.callers import Seen
from bench.fleet.replicas import judge


def test_each_kind_of_mistake_is_counted() -> None:
    seen = Seen(answered=["a", "b", "c"], lost=1, doubled=2, reconnects=[0.1, 0.3, 0.2])
    row = judge(seen, Counter({"a": 1, "b": 2, "x": 1}))
    assert (row["answered"], row["lost"], row["doubled"]) == (3, 1, 2)
    assert (row["unrecorded"], row["recorded_twice"]) == (1, 1)
    assert (row["reconnect_p50_s"], row["reconnect_most_s"]) == (0.2, 0.3)
