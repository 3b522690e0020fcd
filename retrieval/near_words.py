"""Words that mean nearly the same: people ask for photos, and the author of a tool wrote of images.

`near_words.txt` ships with the package and has, by term, the words that one encoder (MiniLM) puts nearest to it, each
with a digit that says how near. `python -m bench.learning.near_words` makes it from that encoder and its vocabulary
alone; no data set takes part. It is read at the first search.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from foretool.retrieval.sorted_lines import SortedLines
from foretool.retrieval.words import stem

FILE = Path(__file__).with_name("near_words.txt")
WEIGHT = 0.5
"""What a word counts that means just the same as a word of the query."""
MARKS = 9
"""The highest digit of the file."""
LONGEST = 16
"""A query with more terms than this says enough by itself."""


def near_terms(said: Mapping[str, float]) -> dict[str, tuple[str, float]]:
    """Return the terms that mean nearly the same as a query's own (the weight of those is at least 1), without these,
    each as a word and with its weight; {} for a long query."""
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
    """Return whether the file has an English word."""
    return bool(_lines().near(stem(word)))


class _Lines:
    """The lines of the file, by term."""

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
