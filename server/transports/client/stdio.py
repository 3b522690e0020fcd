"""The client that started us: lines of JSON on our own stdin and stdout.

Only protocol messages are written there. While the client does not read, we read neither from it nor from upstreams,
and drop progress and log messages for it: memory stays bounded, and every answer waits where it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
import sys
from collections.abc import Callable
from typing import BinaryIO, Final, Protocol

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.general_greeting import UNTOLD_LINE
from foretool.server.protocol.jsonrpc import BadMessage
from foretool.server.protocol.lines import LARGE, LineSplitter
from foretool.server.transports.client.base import Channel, Front, Fronts
from foretool.server.transports.pipes import PipeReader, PipeWriter, Turn

WIDE: Final = 1024 * 1024
"""Bytes that our output pipe may hold, if the system permits: an answer of a megabyte goes out in one piece, and not in
sixteen between which the loop does other things."""
_HIGH_WATER: Final = 8 * 1024 * 1024
"""When more bytes than this wait for the client, nothing more is read."""
DROPPED: Final = tuple(b'{"jsonrpc":"2.0","method":"notifications/%b"' % kind for kind in (b"progress", b"message"))
"""How the messages begin that a client which does not read never gets; upstreams over HTTP go on sending them."""


class StdioOpening(Protocol):
    """What was read of the client, and answered, before the proxy was ready (`local/opening`)."""

    data: bytes
    answer: bytes

    def keep(self, line: bytes, answer: bytes) -> None: ...


class StdioServer(asyncio.BaseProtocol):
    """Serves one client for the life of the process. It is the channel of all requests: they share one output."""

    def __init__(
        self, fronts: Fronts, profile: str, limit: int, turn: Turn | None = None, opening: StdioOpening | None = None
    ) -> None:
        self._fronts = fronts
        self._opening = opening
        self._turn = turn or Turn()
        self._profile = profile
        self._lines = LineSplitter(limit)
        self._front: Front | None = None
        self._reader: PipeReader | None = None
        self._pipe: PipeWriter | None = None
        self._write: Callable[[bytes], object] | None = None
        self.closed = asyncio.Event()
        """Set when the client has closed our input."""

    async def start(self) -> None:
        # Children must not inherit the protocol's pipes, and nothing else in this process may print there.
        output = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        await self._open_output(output)
        self._front = self._fronts.open("legacy", "stdio", self, self._profile)
        if self._opening is not None and self._opening.data:
            self.feed(self._opening.data)
        source = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
        mode = os.fstat(source.fileno()).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or source.isatty():
            self._reader = PipeReader(source, self.feed, self.closed.set)
        else:
            # No event loop can wait for a file or /dev/null, and all of it is there already.
            with source:
                self.feed(source.read())
            self.closed.set()

    async def _open_output(self, output: BinaryIO) -> None:
        """Write to a pipe, a socket or a terminal through the loop, to a file directly."""
        if stat.S_ISREG(os.fstat(output.fileno()).st_mode):
            self._write = output.write
            return
        if (size := getattr(fcntl, "F_SETPIPE_SZ", None)) is not None:
            with contextlib.suppress(OSError):  # it is not a pipe, or not ours: it stays as it is
                fcntl.fcntl(output.fileno(), size, WIDE)
        transport, _ = await asyncio.get_running_loop().connect_write_pipe(lambda: self, output)
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._pipe = PipeWriter(transport, self._turn)
        self._write = self._pipe.write

    # -- Channel

    def send(self, data: bytes) -> None:
        if self._turn.is_held and data.startswith(DROPPED):
            return
        if self._write is None:
            return
        if len(data) > LARGE:  # to add a byte is to copy it
            self._write(jsonrpc.without_line_breaks(data))
            self._write(b"\n")
        else:
            self._write(jsonrpc.without_line_breaks(data) + b"\n")

    def finish(self, data: bytes, code: int | None) -> None:
        self.send(data)

    def poll(self) -> None:
        pass  # a pipe stays open

    def end(self) -> None:
        pass  # the specification asks for silence after a cancelled request

    # -- what the client sends

    def feed(self, data: bytes) -> None:
        assert self._front is not None
        with self._turn:
            for line in self._lines.feed(data):
                take_line(line, self._front, self._channel_for(line))
            if self._lines.too_long:
                refuse_oversized(self._lines, self)

    def _channel_for(self, line: bytes | bytearray) -> Channel:
        """Return where the answer to a line goes; the first one may have its answer."""
        opening, self._opening = self._opening, None
        return self if opening is None else FirstAnswer(self, opening, bytes(line), self._on_untold)

    def _on_untold(self) -> None:
        if self._front is not None:
            take_line(UNTOLD_LINE, self._front, self)

    # -- asyncio.BaseProtocol: what the client takes

    def pause_writing(self) -> None:
        self._turn.hold(True)
        if self._reader is not None:
            self._reader.pause_reading()

    def resume_writing(self) -> None:
        self._turn.hold(False)
        if self._reader is not None:
            self._reader.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.resume_writing()  # nobody will read; what is still written goes nowhere

    def has_unread_output(self) -> bool:
        """Return whether the client has not read everything that was written."""
        return self._pipe is not None and self._pipe.waiting > 0

    async def close(self) -> None:
        """Write what is left to write, then close the pipes."""
        self._turn.hold(False)
        if self._front is not None:
            self._front.close()
        if self._reader is not None:
            self._reader.close()
        if self._pipe is not None:
            self._pipe.close()


class FirstAnswer:
    """The channel of the client's first request. Its answer is kept for later windows, and sent unless the client has
    been answered already."""

    def __init__(self, channel: Channel, opening: StdioOpening, line: bytes, on_untold: Callable[[], None]) -> None:
        """`on_untold` is called if the client was given a different answer."""
        self._opening = opening
        self._line = line
        self._on_untold = on_untold
        self.send = channel.send
        self.poll = channel.poll
        self.end = channel.end

    def finish(self, data: bytes, code: int | None) -> None:
        line = jsonrpc.without_line_breaks(data)
        self._opening.keep(self._line, line)
        if not self._opening.answer:
            self.send(data)
        elif self._opening.answer != line:
            self._on_untold()


def take_line(line: bytes | bytearray, front: Front, channel: Channel) -> None:
    """Give a line of a client to its front, or answer what is wrong with it."""
    try:
        message = jsonrpc.decode(line)
    except BadMessage as error:
        channel.send(jsonrpc.failure(error.id, jsonrpc.error_object(error.code, str(error))))
    else:
        front.receive(message, channel)


def refuse_oversized(lines: LineSplitter, channel: Channel) -> None:
    """Tell a client which of its lines were dropped, each as soon as its id is known."""
    for line in lines.take_too_long():
        if line.id is not None or line.is_over:
            reason = f"a message over {lines.limit} bytes was dropped; raise max_message_mib"
            ident = jsonrpc.decode_value(line.id) if line.id is not None else None
            channel.send(jsonrpc.failure(ident, jsonrpc.error_object(jsonrpc.INVALID_REQUEST, reason)))
