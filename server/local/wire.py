"""What a window's relay must know of the lines that it passes on: which requests have no answer yet.

The relay passes bytes on as they come and decodes no message. It looks at the first and the last bytes of each line,
where clients write the id; json is loaded only for a client that writes it elsewhere.

The relay of a window imports this file, so it imports nothing that takes memory.
"""

from __future__ import annotations

from foretool.server.protocol.cut_lines import END, read_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

MOST_LINE: Final = 64 * 1024
"""Bytes of a line that are kept. Of a longer one the first and the last `END` bytes are."""
_MOST_PENDING: Final = 10_000
"""Requests without an answer that are remembered."""

_OURS: Final = b'{"jsonrpc":"2.0","id":'
"""How every reply of a proxy begins."""
_QUESTION: Final = b'"foretool-'
"""How the ids of a proxy's questions to a client begin: the client's answers have them too."""


def is_greeting(line: bytes) -> bool:
    """Return whether a line of a client is `initialize`, as clients write it."""
    return b'"method":"initialize"' in line or b'"method": "initialize"' in line


def is_discovery(line: bytes) -> bool:
    """Return whether a line of a client is `server/discover`, with which clients of the newest era begin."""
    return b'"method":"server/discover"' in line or b'"method": "server/discover"' in line


class Lines:
    """Cuts a stream into lines, and leaves out the middle of very long ones."""

    def __init__(self) -> None:
        self.open = b""
        """What has come of the line that is not complete."""
        self.is_cut = False
        """Bytes in the middle of the open line are gone."""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield each line that `data` completes, without its end, with whether its middle was left out."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data[start:end])
            line, is_cut = self.open, self.is_cut
            self.open, self.is_cut = b"", False
            start = end + 1
            yield line, is_cut
        if start < len(data):
            self._keep(data[start:])

    def _keep(self, part: bytes) -> None:
        line = self.open + part
        if self.is_cut or len(line) > MOST_LINE:
            line, self.is_cut = line[:END] + line[END:][-END:], True
        self.open = line


class Pending:
    """Tracks one client's unanswered requests, and what a new proxy must be told to continue with the client."""

    def __init__(self) -> None:
        self.ids: dict[bytes, None] = {}
        """As JSON, in the order of the requests."""
        self.repeatable: dict[bytes, bytes] = {}
        """The lines of those that can be sent again without harm: they ask for a list."""
        self.hello: tuple[bytes, bytes] | None = None
        """The line and the id of the latest `initialize`: a client may begin another conversation."""
        self.first: tuple[bytes, bytes] | None = None
        """Those of the first `initialize` or `server/discover`, whose answer the window may give before a proxy."""
        self.notes: dict[str, tuple[bytes, bytes]] = {}
        """Line and id of what else a proxy keeps of a client: its log level, its subscriptions, that it is ready."""

    def asked(self, line: bytes, is_cut: bool) -> None:
        """Note a line of the client."""
        if b'"id"' not in line:
            if b'"notifications/initialized"' in line:
                self.notes["ready"] = (line, b"")
            return
        if not is_cut and b'"method"' not in line:
            return  # an answer to a question
        ident = read_id(line, is_cut)
        if ident is None or ident.startswith(_QUESTION) or len(self.ids) >= _MOST_PENDING:
            return
        self.ids[ident] = None
        if len(line) <= END and b'/list"' in line and b'"tools/call"' not in line:
            self.repeatable[ident] = line
        if self.first is None and (is_greeting(line) or is_discovery(line)):
            self.first = (line, ident)
        if is_greeting(line):
            self.hello = (line, ident)
        elif b'"logging/setLevel"' in line or b'"resources/subscribe"' in line or b'"resources/unsubscribe"' in line:
            self._note(line, ident)

    def _note(self, line: bytes, ident: bytes) -> None:
        import json

        try:
            message = json.loads(line)
            method, uri = message["method"], str(message.get("params", {}).get("uri"))
        except (ValueError, AttributeError, KeyError, RecursionError):
            return
        if method == "logging/setLevel":
            self.notes["level"] = (line, ident)
        elif method == "resources/subscribe" and len(self.notes) < _MOST_PENDING:
            self.notes[f"subscription {uri}"] = (line, ident)
        elif method == "resources/unsubscribe":
            self.notes.pop(f"subscription {uri}", None)

    def answered(self, line: bytes, is_cut: bool) -> bytes | None:
        """Note a line of the proxy. Returns the id of the request that it answers, if any."""
        if not line.startswith(_OURS):
            return None
        ident = read_id(line, is_cut)
        if ident not in self.ids:
            return None
        self.forget(ident)
        return ident

    def forget(self, ident: bytes) -> None:
        del self.ids[ident]
        self.repeatable.pop(ident, None)
