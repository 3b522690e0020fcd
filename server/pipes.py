"""Writing to pipes: what one turn of the loop has to say goes out together, at its end.

A write to a pipe wakes the reader's process and costs more than everything else about a small message; each callback
put off to the next round of the loop costs a look at every file it watches. So whoever reads opens a turn around what
it read, and what the turn says is delivered when it ends.

And what nobody reads must not gather here: while the client on stdio takes nothing, nothing is taken from upstreams.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Final

MANY: Final = 16
"""Messages after which a pipe is written to before the turn ends: its reader can begin."""


log = logging.getLogger("foretool.pipes")


class Turn:
    """What is put off to the end of the turn; outside of one, to the loop's next round. A proxy's pipes share one."""

    def __init__(self) -> None:
        self.is_held = False
        """The client does not read, so the sources are not read either."""
        self._depth = 0
        self._put_off: list[Callable[[], None]] = []
        self._sources: set[asyncio.ReadTransport] = set()

    def add(self, source: asyncio.ReadTransport) -> None:
        """An upstream's output."""
        self._sources.add(source)
        if self.is_held:
            source.pause_reading()

    def remove(self, source: asyncio.ReadTransport) -> None:
        self._sources.discard(source)

    def hold(self, held: bool) -> None:
        """Stop reading the sources, or go on."""
        self.is_held = held
        for source in self._sources:
            if not source.is_closing():
                (source.pause_reading if held else source.resume_reading)()

    def at_end(self, callback: Callable[[], None]) -> None:
        if self._depth:
            self._put_off.append(callback)
        else:
            asyncio.get_running_loop().call_soon(callback)

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Answers that are delivered put off the writes they cause, so the list grows while it is worked through.
        if self._depth == 1:
            for callback in self._put_off:
                try:
                    callback()
                except Exception:  # the boundary: one that fails must not keep the others from being said, ever
                    log.exception("Failed")
            self._put_off.clear()
        self._depth -= 1


class PipeWriter:
    """Gathers the messages of a turn into one write."""

    def __init__(self, transport: asyncio.WriteTransport, turn: Turn) -> None:
        self._transport = transport
        self._turn = turn
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._waiting.append(data)
        if len(self._waiting) == 1:
            self._turn.at_end(self.flush)
        elif len(self._waiting) >= MANY:
            self.flush()

    def flush(self) -> None:
        """Hand over what waits, now."""
        if self._waiting:
            data, self._waiting = b"".join(self._waiting), []
            self._transport.write(data)

    @property
    def waiting(self) -> int:
        """Bytes that its reader has not taken, without those of this turn."""
        return self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.flush()
        self._transport.close()
