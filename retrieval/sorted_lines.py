"""Finds lines of a table that ships with the package: sorted by their bytes, each with a key in front.

The table stays as it is and is searched by halves: as a dict it would take ten times the memory, and a list of where
its lines begin takes 10 ms, which a prompt hook has not. The lines that the first halvings look at are remembered.
"""

from __future__ import annotations

_REMEMBERED = 128
"""Into so many parts a table is cut by halvings that look at each line once only."""


class SortedLines:
    """The lines of a table by their keys. Several lines may have the same key."""

    def __init__(self, data: bytes, separator: bytes) -> None:
        """`separator` stands behind the key of each line, and sorts before every byte of a key."""
        self._data = data
        self._separator = separator
        self._looked_at: dict[tuple[int, int], tuple[int, int, bytes]] = {}
        """By the part that is halved: where its middle line begins and ends, and its key."""

    def find(self, key: bytes) -> list[bytes]:
        """Return what stands behind this key, line by line; [] if no line has it."""
        low, high = 0, len(self._data)  # each is where a line begins, or the end
        while low < high:
            start, end, middle = self._looked_at.get((low, high)) or self._look(low, high)
            low, high = (end, high) if middle < key else (low, start)
        found = list[bytes]()
        while low < len(self._data):
            here, rest = self._split(low)
            if here != key:
                break
            found.append(rest)
            low = self._end(low)
        return found

    def _look(self, low: int, high: int) -> tuple[int, int, bytes]:
        """Return where the middle line of a part begins and ends, and its key."""
        start = max(self._data.rfind(b"\n", low, (low + high) // 2) + 1, low)
        found = start, self._end(start), self._split(start)[0]
        if (high - low) * _REMEMBERED > len(self._data):
            self._looked_at[low, high] = found
        return found

    def _end(self, start: int) -> int:
        """Return where the line after the one at `start` begins."""
        return self._data.find(b"\n", start) + 1 or len(self._data)

    def _split(self, start: int) -> tuple[bytes, bytes]:
        key, _, rest = self._data[start : self._end(start)].rstrip(b"\n").partition(self._separator)
        return key, rest
