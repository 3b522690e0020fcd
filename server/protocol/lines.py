"""Cuts a stream of bytes into lines, and says of a line that is too long which message it is.

A large line is gathered in one buffer that grows, and handed out as it is: pieces that are joined at the end would take
its memory twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from foretool.server.protocol.cut_lines import END, id_at_end, id_at_start

LARGE: Final = 256 * 1024
"""Bytes from which on a line is gathered in one buffer."""


class TooLong(NamedTuple):
    """A line that was dropped because it is over the limit."""

    id: bytes | None
    """The id of its message as JSON; None where it has none, or is not known yet."""
    is_over: bool
    """The line has come to its end."""
    start: bytes
    """Its first bytes."""


class LineSplitter:
    """Cuts a stream of bytes into lines. A line over `limit` bytes is dropped."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.too_long: list[TooLong] = []
        """Lines that were dropped: each as soon as it is over the limit, and a second time at its end if its id was not
        known before."""
        self._parts: list[bytes] = []
        self._large: bytearray | None = None
        self._size = 0
        self._is_named = False
        """The id of the line that is being dropped is known."""
        self._start = self._end = b""
        """The first and the last bytes of the line that is being dropped."""

    def take_too_long(self) -> list[TooLong]:
        """Return what was dropped since the last time, and forget it."""
        found, self.too_long = self.too_long, []
        return found

    @property
    def begun(self) -> bytes:
        """The start of the line that is not complete."""
        return b"".join(self._parts) if self._large is None else bytes(self._large[:LARGE])

    @property
    def _is_skipping(self) -> bool:
        return self._size > self.limit

    def feed(self, data: bytes) -> Iterator[bytes | bytearray]:
        """Return the lines that are complete, without their ends; empty lines are left out."""
        if not self._size and data.find(b"\n") == len(data) - 1 <= self.limit:
            # What nearly every read brings: one whole line.
            line = data.strip()
            return iter((line,) if line else ())
        return self._cut(data)

    def _cut(self, data: bytes) -> Iterator[bytes | bytearray]:
        if b"\n" not in data:
            self._keep(data)
            return
        head, *rest = data.split(b"\n")
        self._keep(head)
        if self._is_skipping:
            self._end_skipping()
        elif line := self._take():
            yield line
        line = b""
        for line in rest[:-1]:
            if line := line.strip():
                yield line
        if rest[-1]:
            self._keep(rest[-1])

    def _keep(self, data: bytes) -> None:
        was_skipping = self._is_skipping
        self._size += len(data)
        if was_skipping:
            self._end = (self._end + data)[-END:]
        elif self._is_skipping:
            self._begin_skipping(data)
        elif self._large is not None:
            self._large += data
        elif self._size > LARGE:
            self._large = bytearray().join((*self._parts, data))
            self._parts = []
        else:
            self._parts.append(data)

    def _take(self) -> bytes | bytearray:
        """Return the line that is complete, and keep nothing of it."""
        line = b"".join(self._parts).strip() if self._large is None else self._large
        self._parts, self._large, self._size = [], None, 0
        if line[:1].isspace() or line[-1:].isspace():
            line = line.strip()
        return line

    def _begin_skipping(self, data: bytes) -> None:
        start = b"".join((*self._parts, bytes((self._large or b"")[:END]), data))
        known = id_at_start(start[:END].lstrip())
        self._parts, self._large, self._end, self._is_named = [], None, start[-END:], known is not None
        self._start = start[:END]
        self.too_long.append(TooLong(known, is_over=False, start=self._start))

    def _end_skipping(self) -> None:
        if not self._is_named:
            self.too_long.append(TooLong(id_at_end(self._end.rstrip()), is_over=True, start=self._start))
        self._size, self._end = 0, b""
