"""Words that mean nearly the same: people ask for photos, and the author of a tool wrote of images.

`near_words.txt` ships with the package and has, by term, the words that one encoder (MiniLM) puts nearest to it, each
with a digit that says how near. `python -m bench.learning.near_words` makes it from that encoder and its vocabulary
alone; no data set takes part. It is read at the first search.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from foretool.retrieval.words import stem

# Finds lines of a table that ships with the package: sorted by their bytes, each with a key in front.
#
# The table stays as it is and is searched by halves: as a dict it would take ten times the memory, and a list of
# where its lines begin takes 10 ms, which a prompt hook has not.


class SortedLines:
    """The lines of a table by their keys. Several lines may have the same key."""

    def __init__(self, data: bytes, separator: bytes) -> None:
        """`separator` stands behind the key of each line, and sorts before every byte of a key."""
        self._data = data
        self._separator = separator

    def find(self, key: bytes) -> list[bytes]:
        """Return what stands behind this key, line by line; [] if no line has it."""
        low, high = 0, len(self._data)  # each is where a line begins, or the end
        while low < high:
            start = max(self._data.rfind(b"\n", low, (low + high) // 2) + 1, low)
            low, high = (self._end(start), high) if self._split(start)[0] < key else (low, start)
        found = list[bytes]()
        while low < len(self._data):
            here, rest = self._split(low)
            if here != key:
                break
            found.append(rest)
            low = self._end(low)
        return found

    def _end(self, start: int) -> int:
        """Return where the line after the one at `start` begins."""
        return self._data.find(b"\n", start) + 1 or len(self._data)

    def _split(self, start: int) -> tuple[bytes, bytes]:
        key, _, rest = self._data[start : self._end(start)].rstrip(b"\n").partition(self._separator)
        return key, rest


FILE = Path(__file__).with_name("near_words.txt")
WEIGHT = 0.5
"""What a word counts that means just the same as a word of the query."""
MARKS = 9
"""The highest digit of the file."""
LONGEST = 16
"""A query with more terms than this says enough by itself."""


def near_terms(said: Mapping[str, float]) -> dict[str, tuple[str, float]]:
    """Return the terms that mean nearly the same as terms of a query, each as a word and with its weight, without the
    query's own. Only own terms of a weight of at least 1 are looked up; {} for a long query."""
    if len(said) > LONGEST:
        return {}
    lines, found = _lines(), dict[str, tuple[str, float]]()
    for term, weight in said.items():
        if weight >= 1.0:
            for near, word, share in lines.near(term):
                if near not in said and (near not in found or share > found[near][1]):
                    found[near] = (word, share)
    return found


def is_known(word: str) -> bool:
    """Return whether the table of near words has an English word."""
    return bool(_lines().near(stem(word)))


class _Lines:
    def __init__(self, data: bytes) -> None:
        self._lines = SortedLines(data, b" ")

    @lru_cache(maxsize=1024)  # noqa: B019 (there is one table)
    def near(self, term: str) -> tuple[tuple[str, str, float], ...]:
        """Return the near terms of a term, each as (term, word, weight)."""
        words = b" ".join(self._lines.find(term.encode("utf-8", "replace"))).decode().split()
        return tuple((stem(word[:-1]), word[:-1], WEIGHT * int(word[-1]) / MARKS) for word in words)


@lru_cache(maxsize=1)
def _lines() -> _Lines:
    return _Lines(FILE.read_bytes())
