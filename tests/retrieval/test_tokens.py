from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import catalog

from foretool.retrieval import tokens
from foretool.retrieval.token_ranks import count_tokens
from foretool.retrieval.tokens import fill_budget


def test_the_estimate_is_near_the_count() -> None:
    texts = [tool.definition.decode() for tool in catalog()]
    counted = count_tokens(texts)
    assert sum(map(tokens.estimate, texts)) == pytest.approx(sum(counted), rel=0.1)


@given(st.text())
def test_any_text_has_an_estimate(text: str) -> None:
    assert (tokens.estimate(text) > 0) == bool(text)


RUNS = [re.compile(pattern) for pattern in (r"[A-Za-z]+", r"[^\w\s]+", r"\d{1,3}")]


@given(st.text(st.one_of(st.characters(), st.sampled_from("aZ_ 019.-…é٣三\ud800½²\x1c"))))
def test_runs_are_counted_as_patterns_find_them(text: str) -> None:
    counted = tokens._count_runs(text.encode("ascii", tokens._STAND_IN))
    assert counted == tuple(len(pattern.findall(text)) for pattern in RUNS)


# A token budget is filled greedily in the given order

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
