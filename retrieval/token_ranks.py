"""Counts tokens of o200k_base (GPT-4o and later) without its 50 MB in memory: the same merges, over a mapped file.

`o200k_base.ranks` holds the tokens of each length one behind the other, in order, then their ranks; all processes share
its 2 MB. The ranks are those of tiktoken (MIT, Copyright (c) 2022 OpenAI, Shantanu Jain);
`python -m bench.retrieval.token_ranks` writes the file.
"""

from __future__ import annotations

import mmap
import re
import struct
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from heapq import heappop, heappush
from pathlib import Path
from typing import Final

ENCODING: Final = "o200k_base"
FILE: Final = Path(__file__).with_name(f"{ENCODING}.ranks")
HEAD: Final = struct.Struct("<256I")
"""How many tokens there are of each length in bytes."""
_REMEMBERED: Final = 20_000
"""Words whose tokens need not be counted again: an answer has mostly the words of the answers before it."""
_LONGEST_REMEMBERED: Final = 64
"""Characters of a word that is remembered, so that texts of strangers do not fill the memory."""
_PIECE: Final = 2_000
"""Characters after which a text is cut between two words, or after twice as many anywhere, which takes a token more at
most. A piece takes a few milliseconds, whatever stands in it."""
_BETWEEN: Final = re.compile(r"(?<=\S)(?= [A-Za-z])")
"""Where a text may be cut without another number of tokens."""

_OF_BOTH_CASES, _UPPER, _LOWER, _DIGIT, _SPACE, _MARK = "\x01Aa0\t-"
"""What stands for characters outside ASCII: a letter without a case, one of each case, and so on."""
_BEGINS: Final = "[^\\r\\nA-Za-z0-9\x01]?"
_CONTRACTION: Final = "(?:'(?:[sdmt]|ll|ve|re))?"
_WORDS: Final = re.compile(
    f"{_BEGINS}[A-Z\x01]*[a-z\x01]+{_CONTRACTION}|{_BEGINS}[A-Z\x01]+[a-z\x01]*{_CONTRACTION}|[0-9]{{1,3}}"
    "| ?[^\\sA-Za-z0-9\x01]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    re.ASCII,
)
"""How o200k_base cuts a text into words, whose byte pairs are merged."""


class RankFile:
    """The token ranks of the tokenizer, looked up in a file without loading it into memory."""

    def __init__(self, path: Path) -> None:
        """Raises `OSError` and `ValueError` if it cannot be read, or is not whole."""
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        counts = HEAD.unpack_from(self._data)
        self._places: list[tuple[int, int]] = [(0, 0)]
        """By length: where its tokens begin, and how many they are."""
        at = HEAD.size
        for length, count in enumerate(counts[1:], 1):
            self._places.append((at, count))
            at += count * (length + 4)
        if at != len(self._data):
            raise ValueError(f"{path}: {len(self._data):,} bytes instead of {at:,}")

    def rank(self, token: bytes) -> int | None:
        """Return the rank of a token, None if it is none."""
        length = len(token)
        if length >= len(self._places):
            return None
        start, count = self._places[length]
        data, low, high = self._data, 0, count
        while low < high:
            middle = (low + high) // 2
            at = start + middle * length
            if data[at : at + length] < token:
                low = middle + 1
            else:
                high = middle
        at = start + low * length
        if low == count or data[at : at + length] != token:
            return None
        at = start + count * length + 4 * low
        return int.from_bytes(data[at : at + 4], "little")


class TokenRanks:
    """Counts the tokens of texts."""

    def __init__(self, ranks: RankFile) -> None:
        self._rank = ranks.rank
        self._count_word = lru_cache(_REMEMBERED)(self._merge)

    def count(self, text: str) -> int:
        return sum(self.count_pieces(text))

    def count_pieces(self, text: str) -> Iterator[int]:
        """Yield the tokens of a text piece by piece, so that other work may come between. Half a surrogate pair counts
        as the replacement mark."""
        text = text.encode("utf-8", "replace").decode()
        start = 0
        while start < len(text):
            found = _BETWEEN.search(text, start + _PIECE, start + 2 * _PIECE)
            end = found.start() if found else start + 2 * _PIECE
            yield self._count_piece(text[start:end])
            start = end

    def _count_piece(self, text: str) -> int:
        written = text if text.isascii() else "".join(each if each.isascii() else _stand_in(each) for each in text)
        words = (text[found.start() : found.end()] for found in _WORDS.finditer(written))
        return sum(self._count_word(word) if len(word) <= _LONGEST_REMEMBERED else self._merge(word) for word in words)

    def _merge(self, word: str) -> int:
        """Merge the byte pairs of a word, the pair of the lowest rank first; return how many pieces are left. A word
        may be long and made by a stranger, so no pair is looked at again that has not changed."""
        whole = word.encode()
        if self._rank(whole) is not None:
            return 1
        size = left = len(whole)
        end_of, start_before = list(range(1, size + 1)), list(range(-1, size))
        """By the start of a piece: its end, 0 for one that was merged; and the start of the piece before it."""
        pairs: list[tuple[int, int, int, int]] = []
        """The rank of each pair, where it begins, where its second piece begins, and where it ends."""

        def note(start: int, middle: int, end: int) -> None:
            if (rank := self._rank(whole[start:end])) is not None:
                heappush(pairs, (rank, start, middle, end))

        for at in range(size - 1):
            note(at, at + 1, at + 2)
        while pairs:
            _, start, middle, end = heappop(pairs)
            if end_of[start] != middle or end_of[middle] != end:
                continue  # one of its pieces has grown
            end_of[start], end_of[middle] = end, 0
            left -= 1
            if start:
                note(start_before[start], start, end)
            if end < size:
                start_before[end] = start
                note(start, end, end_of[end])
        return left


@lru_cache(maxsize=4096)
def _stand_in(character: str) -> str:
    kind = unicodedata.category(character)
    if kind[0] == "L" or kind[0] == "M":
        return {"Lu": _UPPER, "Lt": _UPPER, "Ll": _LOWER}.get(kind, _OF_BOTH_CASES)
    return _DIGIT if kind[0] == "N" else _SPACE if character.isspace() else _MARK


@cache
def open_ranks() -> TokenRanks:
    """Return the ranks that come with foretool, mapped once."""
    return TokenRanks(RankFile(FILE))


def count_tokens(texts: Sequence[str]) -> list[int]:
    return list(map(open_ranks().count, texts))
