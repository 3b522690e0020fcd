"""Puts Chinese into English words: the encoders that come with foretool read English alone.

`glossary_zh.txt` ships with the package and was written for it. A line has a word in simplified characters, a tab, and
English words, none for words that say nothing here (particles, measure words). A line with "=" in front of the English
has a traditional character and the simplified one. It is read when a text with Chinese is met, and its memory is given
back by `let_go`.

Texts come from strangers, so the work is bounded: words are cut from left to right, each the longest one that the
glossary has (maximum matching), of at most `LONGEST` characters. What it lacks stays as it is. Runs with kana in them
are Japanese and stay too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from msgspec import Struct

FILE: Final = Path(__file__).with_name("glossary_zh.txt")
MOST_READ: Final = 4_000
"""How many characters of a text are put into English; what stands behind them stays as it is."""
LONGEST: Final = 12
"""How many characters a word of the glossary has at most."""
SIMPLIFIED: Final = "="
"""Stands before the simplified form of a traditional character."""

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_KANA = "\u3040-\u30ff"
_MARKS = str.maketrans(dict(zip("，。、；：？！（）", ",.,;:?!()", strict=True)))  # noqa: RUF001 (they are Chinese)


@cache
def _any(characters: str) -> re.Pattern[str]:
    """Return the pattern of a run of these characters. A start compiles none of them: that takes 2 ms, which a client
    waits for."""
    return re.compile(f"[{characters}]+")


class Piece(Struct, frozen=True):
    """A part of a text."""

    text: str
    """As it stands there."""
    english: str | None
    """Its English words, "" if it says nothing; None where the glossary does not know it."""


def has_han(text: str) -> bool:
    """Tell whether a text has Chinese characters, which other languages have too."""
    return not text.isascii() and _any(_HAN).search(text) is not None


def put_into_english(text: str) -> str:
    """Return a text with English words in place of the Chinese ones that the glossary knows; a text without Chinese as
    it is."""
    if not has_han(text):
        return text
    parts = (each.text if each.english is None else f" {each.english} " for each in _read(text))
    return " ".join("".join(parts).split())


def translated(text: str) -> list[Piece]:
    """Return the parts of a text that the glossary knows, in their order."""
    return [each for each in _read(text) if each.english is not None] if has_han(text) else []


def let_go() -> None:
    """Give back the memory of the glossary; who asks next reads it again, which takes milliseconds."""
    _glossary.cache_clear()


class Glossary:
    """The words of the file."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._english: dict[str, str] = {}
        self._simplified: dict[int, str] = {}
        for line in lines:
            word, _, english = line.partition("\t")
            if english.startswith(SIMPLIFIED):
                self._simplified[ord(word)] = english[1:]
            else:
                self._english[word] = english
        self._longest: dict[str, int] = {}  # by first character, the length of the longest word
        for word in self._english:
            self._longest[word[0]] = max(len(word), self._longest.get(word[0], 0))

    def cut(self, run: str) -> Iterator[Piece]:
        """Cut a run of Chinese characters into known words and what stands between them."""
        words = run.translate(self._simplified)
        at = unknown = 0
        while at < len(words):
            size = self._size_of_word(words, at)
            if size:
                if unknown < at:
                    yield Piece(run[unknown:at], None)
                yield Piece(run[at : at + size], self._english[words[at : at + size]])
                unknown = at + size
            at += size or 1
        if unknown < at:
            yield Piece(run[unknown:], None)

    def _size_of_word(self, words: str, at: int) -> int:
        """Return the length of the longest word that begins here, 0 if none does."""
        longest = min(self._longest.get(words[at], 0), len(words) - at)
        return next((size for size in range(longest, 0, -1) if words[at : at + size] in self._english), 0)


@lru_cache(maxsize=1)
def _glossary() -> Glossary:
    return Glossary(FILE.read_text("utf-8").splitlines())


def _read(text: str) -> Iterator[Piece]:
    glossary, at = _glossary(), 0
    for run in _any(_HAN + _KANA).finditer(text, 0, MOST_READ):
        yield Piece(text[at : run.start()].translate(_MARKS), None)
        at = run.end()
        if _any(_KANA).search(run[0]):
            yield Piece(run[0], None)
        else:
            yield from glossary.cut(run[0])
    yield Piece(text[at:].translate(_MARKS), None)
