"""Reads what servers write that keep to the protocol almost.

They begin with a BOM, print a prompt before a message or colours around it, write a message over several lines, state
an id as a float, or leave out the version. What keeps to the protocol does not come here.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.cut_lines import END, id_at_end, id_at_start
from foretool.server.protocol.jsonrpc import UNSET, BadMessage, Message

_BOM: Final = b"\xef\xbb\xbf"
_STARTS: Final = 3
"""How many places of a line may be the start of its message."""

_START: Final = re.compile(rb'\{\s*"(?:jsonrpc|id|result|error)"')
_BEGINNING: Final = re.compile(rb'\{"(?:jsonrpc|id|result|error)":')
_COLOURS: Final = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")
_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?')
"""Also one without an end: to look for the end of each quote in it would take the square of its length."""


def without_colours(line: bytes) -> bytes:
    """Return a line without what a terminal would colour it by."""
    return _COLOURS.sub(b"", line) if b"\x1b" in line else line


class BrokenReply(NamedTuple):
    """A line that was meant as a reply and is not valid JSON-RPC."""

    id: int | None
    """Of its request; None where that cannot be told."""


def find_broken_reply(text: bytes | bytearray) -> BrokenReply | None:
    """Return the request that an invalid line was meant to answer; None if it was not meant as a reply. A reply quoted
    in a log line does not count: the real one still comes."""
    # Without its blanks: a message over several lines has many.
    head, tail = (b"".join(part.split()) for part in (bytes(text[:END]).removeprefix(_BOM), bytes(text[-END:])))
    # The version of a reply that is broken off may have stood at its end.
    is_ours = head.startswith(b'{"result":') or b'"jsonrpc"' in head or b'"jsonrpc"' in tail
    if not is_ours or not _BEGINNING.match(head) or b'"method"' in head:
        return None
    ident = id_at_start(head) or id_at_end(tail)
    written = ident.strip(b'"') if ident is not None else b""
    return BrokenReply(int(written) if written.isdigit() else None)


def decode(data: bytes | bytearray) -> Message:
    """Do what `jsonrpc.decode` does, also for a message that keeps to the protocol almost. Raises `BadMessage`."""
    try:
        return jsonrpc.decode(data)
    except BadMessage:
        if (message := _read_almost(bytes(data))) is None:
            raise
        return message


def _read_almost(data: bytes) -> Message | None:
    """Return the message of this text, None if it is none."""
    if data.startswith(_BOM):
        with suppress(BadMessage):
            return jsonrpc.decode(data.removeprefix(_BOM))
    try:
        data.decode()
        members = jsonrpc.fields(data.removeprefix(_BOM))
        ident = jsonrpc.decode_value(members.get("id", jsonrpc.raw(None)))
    except ValueError:
        return None
    if "method" in members or not {"result", "error"} & members.keys():
        return None
    if isinstance(ident, float) and ident.is_integer():
        ident = int(ident)
    if isinstance(ident, bool) or not isinstance(ident, int | str | None):
        return None
    return Message(id=ident, result=members.get("result", UNSET), error=members.get("error", UNSET))


def _read(text: bytes) -> Message | BrokenReply | None:
    try:
        return decode(text)
    except BadMessage:
        return find_broken_reply(text)


class LooseLines:
    """Finds messages among the lines of a server's output that are not messages by themselves."""

    def __init__(self, limit: int) -> None:
        """`limit`: bytes of one message."""
        self._limit = limit
        self._lines: list[bytes] = []
        """Lines of a message that is not complete."""
        self._size = self._depth = 0

    @property
    def is_within(self) -> bool:
        """Whether a message has begun on the lines so far and is not complete."""
        return bool(self._lines)

    @property
    def begun(self) -> bytes:
        """What there is of a message that is not complete."""
        return b"".join(self._lines)

    def read(self, line: bytes | bytearray) -> Message | BrokenReply | None:
        """Return the message that this line contains or ends, or what was meant as one; None if there is none."""
        if self._lines:
            return self._go_on(bytes(line))
        if line == b"{":
            self._keep(bytes(line))
            return None
        text = without_colours(bytes(line))
        # Servers that log to stdout can flood it, and an exception per line is slow.
        if not text.endswith(b"}"):
            return find_broken_reply(text)
        for start in islice(_START.finditer(text), _STARTS):
            with suppress(BadMessage):
                message = decode(text[start.start() :])
                # A log line may quote what was sent; a reply that is quoted is the one that comes.
                if message.is_reply or text[: start.start()] in (b"", _BOM):
                    return message
        return find_broken_reply(text)

    def _go_on(self, line: bytes) -> Message | BrokenReply | None:
        if line.startswith(b'{"jsonrpc"') and (message := _read(line)) is not None:
            self._clear()
            return message
        self._keep(line)
        if self._depth > 0 and self._size <= self._limit:
            return None
        whole = b"\n".join(self._lines)
        self._clear()
        return _read(whole)

    def _keep(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line) + 1
        bare = _STRINGS.sub(b"", line)
        self._depth += bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")

    def _clear(self) -> None:
        self._lines, self._size, self._depth = [], 0, 0
