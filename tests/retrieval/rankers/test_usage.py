from __future__ import annotations

import pytest

from foretool.retrieval.rankers.usage import HABIT, IN_USE, MISS_WEIGHT, decay_usage, habits, usage_shares
from foretool.storage.records import ToolId, Usage

DAY = 86_400.0


def test_use_halves_with_every_half_life_and_a_miss_is_worth_several_calls() -> None:
    usage = Usage(ToolId("a"), calls=4, misses=1, last_at=100.0)
    assert decay_usage(usage, 100.0, DAY) == 4 + MISS_WEIGHT
    assert decay_usage(usage, 100.0 + DAY, DAY) == (4 + MISS_WEIGHT) / 2
    assert decay_usage(usage, 0.0, DAY) == 4 + MISS_WEIGHT, "a clock that was set back makes nothing fresher than fresh"


def test_the_most_used_tool_has_habit_one() -> None:
    used = {ToolId(name): Usage(ToolId(name), calls, 0, 100.0) for name, calls in (("a", 9), ("b", 3), ("c", 0))}
    assert habits(used) == {"a": 1.0, "b": pytest.approx(0.602, abs=1e-3)}
    assert habits({}) == {}


def test_shares_are_small_and_add_up() -> None:
    slot_of = {ToolId("a"): 0, ToolId("b"): 1}
    usage = {ToolId(name): Usage(ToolId(name), 1, 0, 1.0) for name in ("a", "gone")}
    shares = usage_shares(("s", "s", "other"), habits(usage), slot_of, {"s": (0, 1)})
    assert shares == {0: HABIT + IN_USE, 1: IN_USE}
