"""Chinese words are put into English ones, in bounded work, and whatever is not Chinese stays as it is."""

from __future__ import annotations

import re

import pytest

from foretool.retrieval import glossary
from foretool.retrieval.glossary import (
    FILE,
    LONGEST,
    MOST_READ,
    Glossary,
    Piece,
    has_han,
    put_into_english,
    translated,
)

HAN = re.compile(f"[{glossary._HAN}]+")


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("用 github 创建 issue", "use github create issue"),
        ("查询12306余票信息。", "query 12306 remaining tickets information ."),
        ("请幫我搜尋臺北的天氣", "search taipei weather"),
        ("把这个PDF转换成Word文档", "PDF convert to Word document"),
        ("the 天气 of Leeds", "the weather of Leeds"),
    ],
)
def test_known_words_become_english_and_the_rest_stays(text: str, english: str) -> None:
    assert put_into_english(text) == english


@pytest.mark.parametrize("text", ["", "open an issue  in\nmy repository", "hvor er det?", "ฉันต้องการ"])
def test_a_text_without_chinese_is_returned_as_it_is(text: str) -> None:
    assert put_into_english(text) is text and translated(text) == []


def test_japanese_is_read_by_its_own_glossary_and_what_that_lacks_by_the_chinese_one() -> None:
    assert has_han("天気予報を取得する") and put_into_english("天気予報を取得する") == "weather forecast get"
    assert put_into_english("天气 カード名を検索する") == "weather card 名 search"


def test_the_longest_word_counts_and_unknown_characters_stay() -> None:
    known = Glossary(["天\tday", "天气\tweather", "的\t", "氣\t=气"])
    assert list(known.cut("龘天气的天天氣魑")) == [
        Piece("龘", None), Piece("天气", "weather"), Piece("的", ""), Piece("天", "day"), Piece("天氣", "weather"),
        Piece("魑", None),
    ]  # fmt: skip


def test_parts_are_told_as_they_are_written() -> None:
    assert translated("請看 weather 天氣") == [Piece("請", ""), Piece("看", "view"), Piece("天氣", "weather")]


def test_of_a_megabyte_only_the_beginning_is_read() -> None:
    found = put_into_english("查询" * 500_000)
    assert found.split()[: MOST_READ // 2] == ["query"] * (MOST_READ // 2)
    assert found.endswith("查询" * (500_000 - MOST_READ // 2)), "the rest stays"


def test_the_file_is_sorted_and_each_line_has_a_word_and_its_english() -> None:
    lines = FILE.read_text("utf-8").splitlines()
    assert lines == sorted(lines, key=str.encode) and len(lines) > 4000
    words = [line.split("\t") for line in lines]
    assert len({word for word, _ in words}) == len(words)
    for word, english in words:
        assert HAN.fullmatch(word) and len(word) <= LONGEST, word
        if english.startswith("="):
            assert len(word) == 1 and HAN.fullmatch(english[1:]) and len(english) == 2, word
        else:
            assert english.isascii() and english == " ".join(english.split()), word


def test_no_word_of_the_file_is_written_in_traditional_characters_which_would_never_be_met() -> None:
    lines = [line.split("\t") for line in FILE.read_text("utf-8").splitlines()]
    traditional = {word for word, english in lines if english.startswith("=")}
    assert [word for word, english in lines if english[:1] != "=" and traditional.intersection(word)] == []
    assert len(traditional) > 400
