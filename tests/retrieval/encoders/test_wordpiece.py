"""Tokens are those of the package `tokenizers`, whatever a text holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.retrieval.encoders.onnx import VOCABULARY
from foretool.retrieval.encoders.wordpiece import LONGEST, WordPiece, split_words

MINE = WordPiece(VOCABULARY)


@pytest.fixture(scope="module")
def theirs() -> Any:
    tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    return tokenizers.BertWordPieceTokenizer(str(VOCABULARY), lowercase=True)


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "Open an issue on GitHub.", "snake_case camelCase x2", "Zażółć GĘŚLĄ jaźń", "naïve café résumé",
        "東京都 and Seoul 서울", "ΟΔΟΣ ΣΊΣΥΦΟΣ", "İstanbul ISPARTA ß", "a\u200bb\u00adc\ufeffd",
        "a\x00b\x1fc\x7fd\x0be", "\ufffd x", "price: 5€ £3 ¥", "¿qué? «oui» …", "[MASK] [CLS]x[SEP] [mask] [UNK]",
        "\U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469", "a\u3000b\u00a0c\u2028d", "x" * LONGEST,
        "x" * (LONGEST + 1), "e\u0301 e\u0301\u0301", "\u1e9b\u0323", "हिन्दी भाषा", "مرحبا بالعالم",
        "\ufb01ne \ufb02ag",
        "$^`~|<>=+", "don't stop-me_now@home.org", "\t tab\r\nline", "\ue000private\U000f0000",
    ],
)  # fmt: skip
def test_a_text_has_the_tokens_of_the_package(theirs: Any, text: str) -> None:
    assert MINE.encode(text) == theirs.encode(text).ids


# Letters and marks that Unicode added last are unknown to the package, or to an older Python.
OLD = st.characters(exclude_categories=("Cs", "Cn", "Mn", "Po", "Cf", "Ps", "Pe", "Pd", "So", "Mc"))


@given(st.text(OLD | st.sampled_from("aeiou .,-_[]#\u0301\u4e00ß")))
def test_any_text_has_the_tokens_of_the_package(theirs: Any, text: str) -> None:
    assert MINE.encode(text) == theirs.encode(text).ids


def test_words_and_marks_come_one_by_one() -> None:
    assert list(split_words("Héllo, World_2!")) == ["hello", ",", "world", "_", "2", "!"]


def test_halves_of_characters_are_no_error() -> None:
    assert MINE.encode("a\ud800b") == MINE.encode("ab")
