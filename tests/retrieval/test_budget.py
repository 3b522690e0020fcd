"""A token budget is filled greedily in the given order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foretool.retrieval.budget import fill_budget

SIZES = {"a": 100, "b": 10, "c": 40, "d": 40}


def test_what_does_not_fit_is_passed_over() -> None:
    assert fill_budget("acbd", SIZES.__getitem__, 60) == ["c", "b"]


def test_of_each_kind_only_so_many_are_taken() -> None:
    kind = {"a": "large", "b": "small", "c": "small", "d": "small"}.__getitem__
    assert fill_budget("cbda", SIZES.__getitem__, 500, kind=kind, most={"small": 2}) == ["c", "b", "a"]
    assert fill_budget("cbda", SIZES.__getitem__, 500, kind=kind, most={"large": 0}) == ["c", "b", "d"]


@given(st.lists(st.integers(1, 90)), st.integers(-5, 200), st.integers(0, 9))
def test_a_filled_budget_is_kept_and_no_item_that_would_fit_is_left(sizes: list[int], budget: int, cap: int) -> None:
    items = list(enumerate(sizes))
    taken = fill_budget(items, lambda item: item[1], budget, most={None: cap})
    used = sum(size for _, size in taken)
    assert used <= max(budget, 0) and len(taken) <= cap
    assert taken == [item for item in items if item in taken]
    if len(taken) < cap:
        assert all(size > budget - used for number, size in items if (number, size) not in taken)
