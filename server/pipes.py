"""Writing to pipes: what one turn of the loop has to say goes out in at most two writes.

A write to a pipe wakes the reader's process and costs more than everything else about a small message.
"""

from __future__ import annotations

import asyncio


class PipeWriter:
    """The first message of a turn is written at once, so that a lone one is not delayed; those that follow in the same
    turn are written together at its end."""

    def __init__(self, transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []
        self._busy = False

    def write(self, data: bytes) -> None:
        if self._busy:
            self._waiting.append(data)
            return
        self._busy = True
        self._transport.write(data)
        self._loop.call_soon(self._end_turn)

    def flush(self) -> None:
        """Hand over what waits, now."""
        if self._waiting:
            data, self._waiting = b"".join(self._waiting), []
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def _end_turn(self) -> None:
        self._busy = False
        self.flush()
