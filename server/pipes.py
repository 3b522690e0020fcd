"""Writing to pipes: what one turn of the loop has to say goes out together, at its end.

A write to a pipe wakes the reader's process and costs more than everything else about a small message; each callback
put off to the next round of the loop costs a look at every file it watches. So whoever reads opens a turn around what
it read, and what the turn says is delivered when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final

MANY: Final = 16
"""Messages after which a pipe is written to before the turn ends: its reader can begin."""


class Turn:
    """What is put off to the end of the turn; outside of one, to the loop's next round."""

    def __init__(self) -> None:
        self._depth = 0
        self._put_off: list[Callable[[], None]] = []

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
                callback()
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

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.flush()
        self._transport.close()
