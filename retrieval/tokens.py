"""Counts the tokens of texts (o200k_base, GPT-4o and later), estimates them until then, and fills budgets with them.

A tokenizer takes 50 MB of memory. This does the same merges over a mapped file: `o200k_base.ranks` holds the tokens of
each length one behind the other, in order, then their ranks; all processes share its 2 MB. The ranks are those of
tiktoken (MIT, Copyright (c) 2022 OpenAI, Shantanu Jain); `python -m bench.retrieval.token_ranks` writes the file.
"""

from __future__ import annotations

import codecs
import mmap
import re
import struct
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final, TypeVar

T = TypeVar("T")


# Counting


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
        written = text if text.isascii() else "".join(each if each.isascii() else _class_of(each) for each in text)
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
def _class_of(character: str) -> str:
    """Return what stands for a character outside ASCII where a text is cut into words."""
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


# Estimating


_WORD = re.compile(r"[A-Za-z]+")
_MARKS = re.compile(r"[^\w\s]+")
_DIGITS = re.compile(r"\d{1,3}")

_ASCII = [chr(code) if code < 128 else " " for code in range(256)]
_IS_WORD, _IS_MARK = (bytes(kind.match(each) is not None for each in _ASCII) for kind in (_WORD, _MARKS))
"""What `bytes.translate` makes of a text: each byte of a kind becomes a 1, any other a 0."""
_ONLY_DIGITS = "".join(each if _DIGITS.match(each) else " " for each in _ASCII).encode()
"""The same with a space for each byte that is not a digit."""


def estimate(text: str) -> int:
    """Estimate the tokens of a text, in some 10 µs per 2 kB. The mean error is 2.7 % on definitions of tools."""
    if not text:
        return 0
    words, marks, digits = _count_runs(text.encode("ascii", _STAND_IN))
    tokens = 0.0608 * len(text) + 0.6776 * words
    tokens += 1.012 * marks + 1.2499 * digits
    if not text.isascii():
        tokens += 0.271 * (len(text.encode("utf-8", "replace")) - len(text))
    return max(round(tokens), 1)


def _count_runs(text: bytes) -> tuple[int, int, int]:
    """Return how many words, runs of marks, and runs of up to three digits a text has. It counts where runs begin,
    several times as fast as a pattern finds them."""
    digits = text.translate(_ONLY_DIGITS).split()
    return _count_starts(text, _IS_WORD), _count_starts(text, _IS_MARK), sum([(len(run) + 2) // 3 for run in digits])


def _count_starts(text: bytes, kind: bytes) -> int:
    """Return how many bytes of a kind have none before them. As one number, a text is compared with itself at once."""
    flags = int.from_bytes(text.translate(kind), "little")
    return flags.bit_count() - (flags & flags << 8).bit_count()


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for characters outside ASCII: one of ASCII that is a mark, a digit, or neither, as they are.
    A letter outside ASCII ends a word, as a space does."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_ascii_of, error.object[error.start : error.end])), error.end


@lru_cache(maxsize=4096)
def _ascii_of(character: str) -> str:
    return "-" if _MARKS.match(character) else "0" if _DIGITS.match(character) else " "


_STAND_IN = "foretool.retrieval.tokens"
codecs.register_error(_STAND_IN, _stand_in)


# Budgets


def fill_budget(
    items: Iterable[T],
    cost: Callable[[T], int],
    budget: int,
    *,
    kind: Callable[[T], Hashable] = lambda _: None,
    most: Mapping[Any, int] | None = None,
) -> list[T]:
    """Take items in their order while `budget` tokens last, at most `most[kind]` of each kind. An item that costs more
    than what is left is passed over; a cheaper one after it may still be taken."""
    taken: list[T] = []
    counts: Counter[Hashable] = Counter()
    for item in items:
        group, tokens = kind(item), cost(item)
        if tokens <= budget and counts[group] < (most or {}).get(group, len(taken) + 1):
            taken.append(item)
            counts[group] += 1
            budget -= tokens
    return taken
