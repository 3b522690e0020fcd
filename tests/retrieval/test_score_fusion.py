from __future__ import annotations

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.retrieval.ranking import LEVELLING, WHOLE, fuse_lines, level_hits, score_deviation

HITS = st.dictionaries(st.integers(0, 19), st.floats(0.01, 100.0), max_size=20)


def test_spread_counts_the_slots_without_a_hit() -> None:
    # Scores 3, 1, 0, 0: mean 1, variance (4 + 0 + 1 + 1) / 4.
    assert score_deviation({5: 3.0, 2: 1.0}, 4) == pytest.approx(sqrt(1.5))


def test_levelling_by_hand() -> None:
    scale = sqrt(1.5) ** (1 - LEVELLING) * 3.0**LEVELLING
    assert level_hits({5: 3.0, 2: 1.0}, 4) == pytest.approx({5: 3 / scale, 2: 1 / scale})


def test_a_tool_gets_its_best_line_and_the_whole_and_leaders_as_much_again() -> None:
    lines = [{0: 2.0, 1: 1.0}, {1: 2.0}]
    a, b = (level_hits(hits, 4) for hits in lines)
    whole = level_hits({2: 1.0}, 4)
    best = max(a[0], b[1])
    expected = {0: a[0] + best, 1: max(a[1], b[1]) + best, 2: WHOLE * whole[2]}
    assert fuse_lines(lines, {2: 1.0}, 4, str) == pytest.approx(expected)


@given(st.lists(HITS, min_size=1, max_size=8), HITS)
def test_the_best_of_every_line_comes_first(lines: list[dict[int, float]], whole: dict[int, float]) -> None:
    fused = fuse_lines(lines, whole, 20, str)
    assert fused.keys() == whole.keys() | {slot for hits in lines for slot in hits}
    heard = [hits for hits in lines if hits]
    first = sorted(fused, key=lambda slot: -fused[slot])[: len(heard)]
    for hits in heard:
        best = max(hits.values())
        assert any(hits.get(slot) == pytest.approx(best) for slot in first), "scores a rounding apart are equals"


def test_lines_without_a_hit_are_nothing() -> None:
    assert fuse_lines([{}, {}], {}, 3, str) == {}
