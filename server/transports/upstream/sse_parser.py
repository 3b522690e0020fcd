"""Server-sent events: turns bytes into events (HTML standard, section 9.2), with a limit on the size of one event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

BOM: Final = b"\xef\xbb\xbf"


class Event(NamedTuple):
    type: str
    data: bytes


class TooLarge(Exception):
    """An event, or one of its lines, is larger than the limit."""


class EventParser:
    """Parses one stream of events, which may go on over several connections.

    `last_id` and `retry_ms` are the last ones that the server sent; `seen` counts all events, with data or without.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.last_id = ""
        self.retry_ms: int | None = None
        self.seen = 0
        self.restart()

    def restart(self) -> None:
        """Begin a new connection; drop what was cut off on the last one."""
        self._line: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._first = True
        self._clear()

    def _clear(self) -> None:
        self._type = "message"
        self._data: list[bytes] = []
        self._id = self.last_id

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yields the events that `chunk` completes. Raises `TooLarge`; the stream cannot be used after that."""
        if not chunk:
            return
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._keep(line)
            whole = b"".join(self._line)
            self._line = []
            if (event := self._take(whole)) is not None:
                yield event
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        # The size of an event is the sum of its lines, so one limit covers both.
        self._size += len(part)
        if self._size > self.limit:
            raise TooLarge
        self._line.append(part)

    def _take(self, line: bytes) -> Event | None:
        if self._first:
            line, self._first = line.removeprefix(BOM), False
        if not line:
            return self._end()
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._type = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit():
            self.retry_ms = int(value[:9])
        elif not name:
            self._size -= len(line)  # a comment is not part of an event, and there may be very many
        return None

    def _end(self) -> Event | None:
        self.last_id = self._id
        data = b"\n".join(self._data)
        event = Event(self._type, data) if data else None
        self.seen += 1
        self._size = 0
        self._clear()
        return event
