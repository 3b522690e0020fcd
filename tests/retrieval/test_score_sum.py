"""Sums of parts: adding, scaling, and arrays of some slots."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from foretool.retrieval.ranking import Nearness  # noqa: E402
from foretool.retrieval.score_sum import (  # noqa: E402
    ScoreSum,
    by_slot,
    cover_clauses,
    fuse_sums,
    newcomer_lifts,
    total_of,
)


def floats(*values: float) -> object:
    return np.array(values, np.float32)


def test_parts_are_added_and_dropped_tools_stay_out() -> None:
    live = np.array([True, True, False])
    parts = {"lexical": floats(1, 2, 3)}
    blend = ScoreSum(total_of(parts, live), parts, Nearness("m"))
    more = blend.plus({"history": floats(4, 0, 1)})
    assert more.total.tolist() == [5.0, 2.0, -np.inf]
    assert more.of(0) == {"lexical": 1.0, "history": 4.0}
    assert more.nearness == Nearness("m")
    assert blend.plus({}) is blend


def test_factors_scale_their_part_alone() -> None:
    parts = {"a": floats(1, 2), "b": floats(3, 1)}
    blend = ScoreSum(total_of(parts), parts)
    scaled = blend.scaled({"b": 0.5, "unheard": 9.0})
    assert scaled.total.tolist() == [2.5, 2.5]
    assert scaled.of(1) == {"a": 2.0, "b": 0.5}
    assert blend.scaled({"a": 1.0}) is blend


def test_some_slots_as_an_array() -> None:
    assert by_slot({2: 1.5}, 4).tolist() == [0.0, 0.0, 1.5, 0.0]
    assert by_slot({}, 2).tolist() == [0.0, 0.0]


def test_every_clause_puts_its_two_best_tools_ahead_and_the_whole_its_best() -> None:
    live = np.array([True, True, True, True, False])
    whole, sharp, flat = (
        ScoreSum(total_of(parts, live), parts)
        for parts in ({"m": floats(*values)} for values in ((3, 2, 0, 1, 9), (4, 3.5, -1, 0, 9), (0, 0, 1, 0.5, 9)))
    )
    found = cover_clauses(whole, [sharp, flat], "abcde")
    # The middle of the tops 4 and 1 is 2.5: the clauses count times the roots of 2.5 / 4 and of 2.5 / 1.
    down, up = 0.625**0.5, 2.5**0.5
    np.testing.assert_allclose(found.parts["clauses"], [4 * down, 3.5 * down, up, 0.5 * up, 0], atol=1e-6)
    assert found.parts["line"].tolist() == [2.0, 0.5, 1.0, 0.5, 0.0], "tool a leads a clause and the whole"
    np.testing.assert_allclose(found.total[:4], [5 + 4 * down, 2.5 + 3.5 * down, 1 + up, 1.5 + 0.5 * up], atol=1e-6)
    assert not np.isfinite(found.total[4]), "a dropped tool stays dropped"
    assert cover_clauses(whole, [flat, flat], "abcde").parts["line"].tolist() == [1.0, 0.0, 1.0, 0.5, 0.0]


def test_clauses_that_no_tool_meets_change_nothing() -> None:
    whole, none = (ScoreSum(total_of(parts), parts) for parts in ({"m": floats(1, 2)}, {"m": floats(-1, 0)}))
    assert cover_clauses(whole, [none], "ab") is whole


def test_tools_that_nothing_was_learned_of_keep_their_share_of_the_places() -> None:
    total = floats(9, 8, 7, 6, 5, 1.0, 0.8, 0.2)
    base = floats(0, 0, 0, 0, 0, 1.0, 0.8, 0.2)
    new = np.array([False] * 5 + [True] * 3)
    # A third of the places: the first after two others (above 7), the second after four (above 5); the last of them
    # has less than half of the best words and stays where it is.
    assert newcomer_lifts(total, base, new, 1 / 3) == {5: pytest.approx(6.001), 6: pytest.approx(4.201)}
    assert newcomer_lifts(total, base, ~new, 1 / 3) == {}
    assert newcomer_lifts(total, np.zeros(8, np.float32), new, 0.5) == {}


def test_a_part_that_only_one_line_has_is_in_the_sum_of_all_lines() -> None:
    def blend(**parts: object) -> ScoreSum:
        return ScoreSum(total_of(parts), parts)

    lines = [blend(words=floats(2, 0, 0)), blend(words=floats(0, 2, 0), new=floats(0, 0, 3))]
    fused = fuse_sums(lines, blend(words=floats(1, 1, 0)), ["a", "b", "c"])
    assert set(fused.parts) == {"words", "new", "line"}
    assert fused.of(2)["new"] > 0.0
    assert fused.of(0)["new"] == 0.0
    assert fused.total.tolist() == pytest.approx(np.sum(list(fused.parts.values()), axis=0).tolist())
