"""Pipes: the messages of one turn of the loop go out together at its end, and all input is read into one buffer.

A write to a pipe wakes the process that reads it, which costs more than everything else about a small message; a
callback in the next round of the loop costs a look at every file that the loop watches. So whoever reads opens a turn
around what it has read, and the messages that this causes are written when the turn ends.

Messages that nobody reads must not pile up here: while the client on stdio does not read, upstreams are not read.

asyncio reads into a new block of 256 KiB, which it then cuts down to what came. Such blocks leave holes in the heap
that nothing else fits into. So pipes and clients' sockets are read into one buffer, and only what came is copied out.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from types import TracebackType
from typing import IO, Final

MANY: Final = 16
"""After this many messages a pipe is written to before the turn ends, so that its reader can begin."""

_LARGE: Final = 256 * 1024
"""Bytes from which on a message is written alone."""

BUFFER: Final = memoryview(bytearray(256 * 1024))
"""Holds what was read until the reader has copied it out, at once. For use by one thread."""

log = logging.getLogger("foretool.pipes")


class Turn:
    """Runs callbacks at the end of the turn in which input is handled; outside of one, in the loop's next round. All
    pipes of a proxy share one."""

    def __init__(self) -> None:
        self.is_held = False
        """The client does not read, so the upstreams are not read either."""
        self._depth = 0
        self._callbacks: list[Callable[[], None]] = []
        self._sources: set[PipeReader] = set()

    def add(self, source: PipeReader) -> None:
        """Add the output of an upstream."""
        self._sources.add(source)
        if self.is_held:
            source.pause_reading()

    def remove(self, source: PipeReader) -> None:
        self._sources.discard(source)

    def hold(self, held: bool) -> None:
        """Stop reading the upstreams, or continue."""
        self.is_held = held
        for source in self._sources:
            (source.pause_reading if held else source.resume_reading)()

    def at_end(self, callback: Callable[[], None]) -> None:
        if self._depth:
            self._callbacks.append(callback)
        else:
            asyncio.get_running_loop().call_soon(callback)

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Callbacks that deliver answers add the writes that these cause, so the list grows while it is worked through.
        if self._depth == 1:
            for callback in self._callbacks:
                try:
                    callback()
                except Exception:  # the boundary: a callback that fails must not keep the others from running
                    log.exception("a callback at the end of a turn failed")
            self._callbacks.clear()
        self._depth -= 1


class PipeWriter:
    """Collects the messages of one round of the loop, and writes them together."""

    def __init__(self, transport: asyncio.WriteTransport, turn: Turn) -> None:
        self._transport = transport
        self._turn = turn
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        if len(data) > _LARGE:  # to join it with others would copy it
            self.flush()
            self._transport.write(data)
            return
        self._waiting.append(data)
        if len(self._waiting) == 1:
            self._turn.at_end(self.flush)
        elif len(self._waiting) >= MANY:
            self.flush()

    def flush(self) -> None:
        """Write what waits, now."""
        if self._waiting:
            data, self._waiting = b"".join(self._waiting), []
            self._transport.write(data)

    @property
    def waiting(self) -> int:
        """How many bytes the reader has not taken, without those of this turn."""
        return self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.flush()
        self._transport.close()


class PipeReader:
    """Reads a pipe, a socket or a terminal on the running loop, and closes it at its end."""

    def __init__(
        self, pipe: IO[bytes], feed: Callable[[bytes], None], lost: Callable[[], None], most: int = len(BUFFER)
    ) -> None:
        """`feed` gets what was read, `most` bytes at a time; `lost` is called once when the other side has closed the
        pipe, or we have."""
        self._pipe = pipe
        self._feed = feed
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self.is_closed = False
        self._buffer = BUFFER[:most]
        self._is_paused = self._is_resting = False
        self._is_reading = True
        self._rest_of_work: Callable[[], None] | None = None
        """What is to be done before more is read."""
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._read)

    def _read(self) -> None:
        try:
            count = os.readv(self._pipe.fileno(), [self._buffer])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:  # EIO from a terminal that is gone
            log.debug("a pipe could not be read: %s", error)
            count = 0
        if count:
            self._feed(bytes(BUFFER[:count]))
        else:
            self.close()

    def pause_reading(self) -> None:
        self._set_paused(True, self._is_resting)

    def resume_reading(self) -> None:
        self._set_paused(False, self._is_resting)

    def rest(self, seconds: float, then: Callable[[], None] | None = None) -> None:
        """Read nothing for so many seconds, even if reading is resumed meanwhile; then call `then` and read on."""
        if not self.is_closed and not self._is_resting:
            self._rest_of_work = then
            self._set_paused(self._is_paused, True)
            self._loop.call_later(seconds, self._end_rest)

    def _end_rest(self) -> None:
        self._set_paused(self._is_paused, False)

    def _set_paused(self, paused: bool, resting: bool) -> None:
        self._is_paused, self._is_resting = paused, resting
        if not self.is_closed and not paused and not resting and (then := self._rest_of_work) is not None:
            self._rest_of_work = None
            then()  # it may ask for another rest
        reads = not self._is_paused and not self._is_resting
        if self.is_closed or reads == self._is_reading:
            return
        self._is_reading = reads
        if reads:
            self._loop.add_reader(self._pipe.fileno(), self._read)
        else:
            self._loop.remove_reader(self._pipe.fileno())

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()
            self._loop.call_soon(self._lost)
