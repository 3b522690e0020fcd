"""What a client says while its window has no proxy yet: its greeting is answered at once, if the answer is known.

A proxy needs some tenths of a second of a processor until it can answer, and on a busy machine that is more than some
clients wait. So each answer to `initialize` is kept, together with the very line that asked for it; to
`server/discover`, with which clients of the newest era begin, likewise. The next window whose client begins with the
same line gets the same answer, as long as the config, the storage and the installation are the same and nothing was
decided about a server's texts. A client without such an answer gets one that is true of any config, if a new proxy does
not answer within `_PATIENCE_S`. In both cases the proxy still takes in the line; its own answer is kept, and does not
go to the client. Where the two differ the proxy is told so (`UNTOLD`): what its servers say of themselves may stand in
its own alone.

Every window imports this file, so it imports nothing that takes memory.
"""

from __future__ import annotations

import os
import select
import time
import zlib

from foretool._version import __version__
from foretool.server.local.frames import installation
from foretool.server.local.places import ANSWER_SUFFIX, find_folder, name_answer
from foretool.server.local.unix import SocketFolder
from foretool.server.local.wire import is_discovery, is_greeting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from foretool.server.local.places import ProxyIdentity

MOST_BYTES: Final = 64 * 1024
"""The longest first line, and the longest answer, that are kept."""
_PATIENCE_S: Final = 0.2
"""How long the first answer of a new proxy is waited for, which says more: what the servers say of themselves. On a
quiet machine it comes within this time. On a busy one it takes a second and more, and nobody waits for it."""
_PLACES: Final = 16
"""How many answers are kept for one config and profile: a client whose first line never comes again fills no disk."""


class KeptAnswers:
    """Keeps the answers to clients' first messages, by config and profile, to answer the next window at once."""

    def __init__(self, folder: str, wanted: ProxyIdentity, environ: Mapping[str, str] = os.environ) -> None:
        self._folder = folder
        self._wanted = wanted
        self._environ = environ

    def find(self, line: bytes) -> bytes | None:
        """Return the answer to this line; None where none is kept, or something has changed since."""
        try:
            with SocketFolder(self._folder) as place:
                head, asked, answer = place.read(self._name(line), 3 * MOST_BYTES).split(b"\n", 2)
            return answer if asked == line and head == self._head() else None
        except (OSError, ValueError):
            return None

    def keep(self, line: bytes, answer: bytes) -> None:
        """Keep the answer to a line in the place of an earlier one."""
        is_greeted = is_greeting(line) and b'"protocolVersion"' in answer
        is_wanted = is_greeted or (is_discovery(line) and b'"supportedVersions"' in answer)
        if not is_wanted or max(len(line), len(answer)) >= MOST_BYTES or self.find(line) == answer:
            return
        try:
            with SocketFolder(self._folder, make=True) as place:
                place.write(self._name(line), b"\n".join((self._head(), line, answer)))
        except OSError:
            pass  # the next window's client waits for its proxy

    def _name(self, line: bytes) -> str:
        return name_answer(self._wanted, str(zlib.crc32(line) % _PLACES))

    def _head(self) -> bytes:
        """Return what has to be the same. Raises `OSError` where the config is gone."""
        file = os.stat(self._wanted.config)  # noqa: PTH116 -- pathlib takes memory
        storage = [self._environ.get(name, "") for name in ("FORETOOL_STORAGE", "XDG_STATE_HOME")]
        state = (__version__, installation(), file.st_mtime_ns, file.st_size, file.st_ino, *storage)
        return ascii(state).encode()


def forget_answers(environ: Mapping[str, str] = os.environ) -> None:
    """Drop all kept answers: some may quote a text that the user no longer wants to be passed on."""
    if (folder := find_folder(environ)) is None:
        return
    try:
        with SocketFolder(folder) as place:
            for name in place.names():
                if name.endswith(ANSWER_SUFFIX):
                    place.remove(name)
    except OSError:
        pass  # there are none


def _is_busy() -> bool:
    """Return whether more programs want a processor than there are."""
    return os.getloadavg()[0] >= (os.cpu_count() or 1)


class Opening:
    """Reads the first message of a client, and may answer it before a proxy is there."""

    def __init__(self, answers: KeptAnswers, source: int = 0, output: int = 1) -> None:
        self._answers = answers
        self._source = source
        self._output = output
        self._line: bytes | None = None
        self._general_at = time.monotonic() + (0 if _is_busy() else _PATIENCE_S)
        self.data = b""
        """What was read of the client, which a proxy has to be told."""
        self.answer = b""
        """What the client was told to its first line, b"" while it was told nothing."""
        self._is_over = False

    def hand_over(self) -> bytes:
        """Stop reading, and return what was read of the client."""
        self._is_over = True
        return self.data

    def wait(self, patience_s: float, proxy: int | None = None) -> None:
        """Answer the first line as soon as it comes, from what is kept, or after some patience as to any client; stop
        when `proxy`, a socket, can be read."""
        until = time.monotonic() + patience_s
        while not self._is_over and not self.answer and len(self.data) < MOST_BYTES:
            now, poll = time.monotonic(), select.poll()
            if self._line is not None and now >= self._general_at:
                self._answer_as_to_anybody(self._line)
                return
            if self._line is None:
                poll.register(self._source, select.POLLIN)
            if proxy is not None:
                poll.register(proxy, select.POLLIN)
            end = until if self._line is None else min(until, self._general_at)
            ready = [file for file, _ in poll.poll(max(0, end - now) * 1000)]
            if proxy in ready or (not ready and end == until) or (self._source in ready and not self._read()):
                return

    def _answer_as_to_anybody(self, line: bytes) -> None:
        from foretool.server.protocol.general_greeting import greet_anybody

        self._is_over = True
        if (is_greeting(line) or is_discovery(line)) and (answer := greet_anybody(line)) is not None:
            self._write(answer)

    def _read(self) -> bool:
        """Read on, and answer the line if it is complete. Returns False where the client says no more."""
        try:
            data = os.read(self._source, MOST_BYTES)
        except OSError:
            return False
        self.data += data
        self._line, end, _ = self.data.partition(b"\n")
        if not end:
            self._line = None
        elif (answer := self._answers.find(self._line)) is not None:
            self._write(answer)
        return bool(data)

    def _write(self, answer: bytes) -> None:
        self.answer = answer
        data = answer + b"\n"
        try:
            while data:
                data = data[os.write(self._output, data) :]
        except OSError:
            pass  # nobody reads our answers any more; the window notices it itself

    def keep(self, line: bytes, answer: bytes) -> None:
        """Keep what a proxy answers to this line for the next window."""
        self._answers.keep(line, answer)
