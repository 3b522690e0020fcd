"""Messages on their way to an HTTP client, kept as logs through which responses walk.

A stream outlives the response that carries it: after a broken connection a legacy client names the last event it got,
and another response continues from there. The size of what is kept is limited: the oldest messages go first, and a
client that does not read loses its connection instead of using up memory.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from foretool.server.protocol import jsonrpc

STREAM_BYTES: Final = 16 * 1024 * 1024
"""Most bytes that a stream holds for its client; a single larger message still passes."""
_SESSION_BYTES: Final = 32 * 1024 * 1024
"""Most bytes that all streams of a legacy session hold together, finished ones included."""
KEPT_READ: Final = 8
"""Finished streams that are kept after they were sent: the client may not have got their end."""
KEPT: Final = 64
"""Finished streams that are kept at all, sent or not."""
_BATCH_BYTES: Final = 64 * 1024
"""Messages written in one go."""

_ALL_BYTES: Final = 24 * 1024 * 1024
"""Most bytes that are kept for all clients together; a single larger message still passes."""
MOST_READERS: Final = 8
"""Responses that may carry one stream; the oldest one ends for one more."""

PING: Final = b": ping\n\n"

_EVENT_ID = re.compile(r"([0-9A-Za-z_~=-]{1,160})\.(-1|[0-9]{1,18})")

Keep = Callable[[str, int, bytes, bool], None]
"""Keeps an event for other replicas, before it is sent: stream, number, data, and whether it is the last one."""


READ_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of answers that are kept after they were sent, for all clients together; a single larger one is kept."""
READ_STREAM_BYTES: Final = 256 * 1024
"""Most bytes of an open stream that are kept after they were sent, besides its latest event."""
READ_S: Final = 30.0
"""How long they are kept: whoever has lost its connection comes back within seconds."""


class _Read(NamedTuple):
    """A finished stream that was sent to its end."""

    at: float
    size: int
    discard: Callable[[], None]


class Memory:
    """Limits the bytes that are kept for all clients. `relieve` is called while there are too many."""

    def __init__(
        self, relieve: Callable[[], None] = lambda: None, limit: int = _ALL_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.size = 0
        self.limit = limit
        self._relieve = relieve
        self._clock = clock
        self._read: dict[Stream, _Read] = {}
        """Finished streams that were sent to their end, the oldest first."""
        self._read_size = 0

    def keep_read(self, stream: Stream, discard: Callable[[], None]) -> None:
        """Keep a stream for a while after it was sent to its end, in case the client has not received all of it."""
        self.release(stream)
        self._read[stream] = _Read(self._clock(), stream.size, discard)
        self._read_size += stream.size
        while len(self._read) > 1 and self._read_size > READ_BYTES:
            self._discard_read()

    def forget_read(self) -> None:
        """Discard the streams that were sent long ago; called about once a second."""
        while self._read and self._clock() - next(iter(self._read.values())).at >= READ_S:
            self._discard_read()

    def release(self, stream: Stream) -> None:
        """Note that a stream is sent again, or is gone."""
        if (read := self._read.pop(stream, None)) is not None:
            self._read_size -= read.size

    def _discard_read(self) -> None:
        stream = next(iter(self._read))
        discard = self._read[stream].discard
        self.release(stream)
        discard()

    @property
    def is_full(self) -> bool:
        return self.size > self.limit

    def resize(self, change: int) -> None:
        self.size += change
        if change > 0 and self.size > self.limit:
            self._relieve()


class Reader:
    """One response that carries a stream. If a stream has several, only the newest gets messages. `cut` is called to
    break a response whose client does not read."""

    def __init__(self, stream: Stream, cut: Callable[[], None]) -> None:
        self.stream = stream
        self.is_over = False
        self._cut = cut
        self._waiter: asyncio.Future[bool] | None = None

    def take(self) -> bytes:
        """Return the bytes of the events that were not sent yet; b"" if there are none."""
        return b"" if self.is_over else self.stream.take(self)

    def wake(self, has_news: bool = True) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(has_news)

    def leave(self, *, abort: bool = False) -> None:
        """End the response and keep the stream. `abort`: break the connection."""
        if not self.is_over:
            self.is_over = True
            self.wake()
            if abort:
                self._cut()

    async def wait(self, seconds: float) -> bool:
        """Wait for news. Returns False if there are none within this time."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self.wake, False)
        try:
            return await self._waiter
        finally:
            timer.cancel()
            self._waiter = None


class Stream:
    """The `Channel` of one request, or of everything that belongs to no request. With a `store`, events are kept after
    they were sent, so that the stream can be resumed."""

    def __init__(
        self, name: str, store: EventStore | None = None, limit: int = STREAM_BYTES, memory: Memory | None = None
    ) -> None:
        self.name = name
        self.code: int | None = None
        """The error code of the reply."""
        self.is_finished = False
        self.is_overfull = False
        """Without a store: the client does not read, and its messages were dropped."""
        self.size = 0
        self._limit = limit
        self._store = store
        self._memory = memory
        self._events: deque[bytes] = deque()
        self._first = 0
        """Index of the oldest event that is held."""
        self._next = 0
        """Index of the next event to send."""
        self._readers: list[Reader] = []

    # -- Channel

    def send(self, data: bytes) -> None:
        self._append(data, is_last=False)

    def _append(self, data: bytes, *, is_last: bool) -> None:
        if self.is_finished or self.is_overfull:
            return
        self._events.append(jsonrpc.without_line_breaks(data))
        if self._store is not None and self._store.keep is not None:
            self._store.keep(self.name, self._first + len(self._events) - 1, self._events[-1], is_last)
        self._resize(len(data))
        while self.size > self._limit and self.drop_oldest():
            pass
        if self._readers:
            self._readers[-1].wake()

    def finish(self, data: bytes, code: int | None) -> None:
        if not self.is_finished:
            self._append(data, is_last=True)
            self.code = code
            self.end()

    def end(self) -> None:
        if not self.is_finished:
            self.is_finished = True
            for reader in self._readers:
                reader.wake()
            if self._store is not None:
                self._store.on_finished(self)

    def poll(self) -> None:
        """Make the client come back for the rest, as the upstream does with us (specification 2025-11-25)."""
        if self._store is not None and self._store.primes:
            for reader in self._readers:
                reader.leave()

    # -- used by responses

    @property
    def is_carried(self) -> bool:
        """Whether some response is sending it now."""
        return bool(self._readers)

    def withdraw(self) -> list[bytes]:
        """Remove and return the events that were not sent yet; another replica sends them in our place."""
        unsent = [self._events[place - self._first] for place in range(self._next, self._first + len(self._events))]
        for event in unsent:
            self._events.pop()
            self._resize(-len(event))
        return unsent

    @property
    def is_read(self) -> bool:
        return self._next == self._first + len(self._events)

    def attach(self, cut: Callable[[], None]) -> Reader:
        reader = Reader(self, cut)
        self._readers.append(reader)
        if len(self._readers) > MOST_READERS:
            self._readers[0].leave()
        return reader

    def detach(self, reader: Reader) -> None:
        self._readers.remove(reader)
        if self._readers:
            self._readers[-1].wake()
        if self.is_finished and self._store is not None:
            self._store.on_finished(self)

    def begin_at(self, index: int) -> None:
        """Number the next event `index`."""
        self._first = self._next = index

    def resume_after(self, index: int) -> bool:
        """Send again from the event after this one. Returns False when there was no such event."""
        if not -1 <= index < self._first + len(self._events):
            return False
        self._next = max(index + 1, self._first)
        return True

    def take(self, reader: Reader) -> bytes:
        if reader is not self._readers[-1]:
            reader.is_over = self.is_finished
            return b""
        parts, size = [], 0
        while not self.is_read and size < _BATCH_BYTES:
            event = self._events[self._next - self._first]
            parts.append(self._framed(event))
            size += len(event)
            self._next += 1
            if self._store is None:
                self._forget_oldest()
        # The latest event stays in any case: its client may not have got it.
        while self._store is not None and self.size > READ_STREAM_BYTES and self._next - self._first > 1:
            self._forget_oldest()
        reader.is_over = (self.is_finished and self.is_read) or self.is_overfull
        return b"".join(parts)

    def take_only(self) -> bytes | None:
        """Take the reply off the stream if it is its only message; else return None."""
        return self._events.popleft() if self.is_finished and len(self._events) == 1 and self._next == 0 else None

    @property
    def latest(self) -> bytes | None:
        return self._events[-1] if self._events else None

    def priming_event(self, retry_ms: int) -> bytes:
        """Return an event without data from which the client can resume (specification 2025-11-25)."""
        return f"id: {self.name}.{self._next - 1}\nretry: {retry_ms}\ndata:\n\n".encode()

    def _framed(self, event: bytes) -> bytes:
        number = f"id: {self.name}.{self._next}\n".encode() if self._store is not None else b""
        return b"%bevent: message\ndata: %b\n\n" % (number, event)

    def drop_oldest(self) -> bool:
        """Drop the oldest event to free memory. Returns False if only the newest one is left. A client that was not
        sent the dropped event does not read, and loses its connection."""
        if len(self._events) < 2:
            return False
        unread = self._next == self._first
        if unread and self._store is None:
            self.is_overfull = True
            while self._events:
                self._forget_oldest()
        else:
            self._forget_oldest()
        if unread:
            self._next = self._first
            for reader in list(self._readers):
                reader.leave(abort=True)
        return True

    def _forget_oldest(self) -> None:
        self._first += 1
        self._resize(-len(self._events.popleft()))

    def _resize(self, change: int) -> None:
        self.size += change
        if self._store is not None:
            self._store.on_resized(change)
        elif self._memory is not None:
            self._memory.resize(change)

    def release(self) -> None:
        """Stop counting the bytes of a stream without a store that nobody reads any more."""
        if self._memory is not None:
            self._memory.resize(-self.size)
            self._memory = None


class EventStore:
    """Keeps the streams of one legacy session: the open ones, the standalone one, and the latest finished ones."""

    def __init__(
        self, limit: int = _SESSION_BYTES, memory: Memory | None = None, prefix: str = "", keep: Keep | None = None
    ) -> None:
        """`prefix`: what the names of its streams begin with, and those of no other replica. `keep`: None for one
        process alone."""
        self.prefix = prefix
        self.keep = keep
        self.primes = False
        """The client understands an event id before the first message (2025-11-25 and later)."""
        self._limit = limit
        self._memory = memory or Memory()
        self.size = 0
        self._count = 0
        self._streams: dict[str, Stream] = {}
        self._finished: dict[str, Stream] = {}
        self.standalone = self.open_stream()

    def open_stream(self, tag: str = "") -> Stream:
        """Open a stream. `tag`: what the end of its name says."""
        name = f"{self.prefix}{self._count}{tag}"
        stream = self._streams[name] = Stream(name, self)
        self._count += 1
        return stream

    def adopt(self, name: str, after: int) -> Stream:
        """Open a stream that another replica began; it continues after an event."""
        stream = self._streams[name] = Stream(name, self)
        stream.begin_at(after + 1)
        return stream

    def resume(self, event_id: str) -> Stream | None:
        """Return the stream of an event, set to continue after it; None when it is not kept any more."""
        name, index = split_event_id(event_id)
        stream = self._streams.get(name)
        if stream is None or not stream.resume_after(index):
            return None
        self._memory.release(stream)
        return stream

    def on_finished(self, stream: Stream) -> None:
        if stream.name in self._streams:
            self._finished[stream.name] = stream
            read = [name for name, held in self._finished.items() if held.is_read]
            for name in [*read[:-KEPT_READ], *list(self._finished)[:-KEPT]]:
                self._discard(name)
            if stream.is_read and stream.name in self._streams:
                self._memory.keep_read(stream, partial(self._discard, stream.name))

    def on_resized(self, change: int) -> None:
        self.size += change
        while change > 0 and self.size > self._limit and self.drop_oldest():
            pass
        self._memory.resize(change)

    @property
    def open_count(self) -> int:
        """How many streams have no end yet."""
        return len(self._streams) - len(self._finished)

    def drop_oldest(self) -> bool:
        """Drop the oldest of what is kept, to free memory. Returns False if nothing is left to drop."""
        if self._finished:
            self._discard(next(iter(self._finished)))
            return True
        return max(self._streams.values(), key=lambda stream: stream.size).drop_oldest()

    def _discard(self, name: str) -> None:
        if (stream := self._finished.pop(name, None)) is not None:
            self.size -= stream.size
            self._memory.resize(-stream.size)
            self._memory.release(stream)
            del self._streams[name]

    def close(self) -> None:
        for stream in list(self._streams.values()):
            stream.end()
            self._memory.release(stream)
        self._memory.resize(-self.size)
        self._memory = Memory()


def split_event_id(event_id: str) -> tuple[str, int]:
    """Return the stream of an event and its number, "" and 0 for what is no event of ours."""
    found = _EVENT_ID.fullmatch(event_id)
    return (found[1], int(found[2])) if found else ("", 0)
