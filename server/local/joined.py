"""The proxy's end of each window that has joined it: one more client, whose bytes come over the local socket.

No window costs another one anything: of one that sends much, a few lines are taken in each turn of the loop, and
nothing more is read from it while many of its requests have no answer. One that does not read gets no progress and no
log messages, nothing is read from it, and after `MOST_UNREAD` bytes it is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from foretool.server.config.errors import RefusedConfig
from foretool.server.local.frames import WINDOW_BYTES
from foretool.server.local.server import CallerLink, Hello, QuestionTalk, Service
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.lines import LARGE, LineSplitter
from foretool.server.transports.client.base import Front, Fronts
from foretool.server.transports.client.stdio import DROPPED, refuse_oversized, take_line
from foretool.server.transports.pipes import MANY, Turn
from foretool.server.transports.tasks import SLICE_S

_MOST_WINDOWS: Final = 200
MOST_OPEN: Final = 500
"""Requests of one window without an answer; with more nothing is read from it."""
MOST_LINES: Final = 32
"""Lines of one window that are taken in one turn of the loop, unless these take longer than a slice."""
MOST_UNREAD: Final = 256 * 1024 * 1024
"""Bytes that a window may leave unread until it is dropped: answers to `MOST_OPEN` requests may be large."""
LOOK_S: Final = 2.0
"""How long a new window waits until a config that has changed is in force."""
_FIRST_S: Final = 10.0
"""How long a new proxy waits for its first window, which may have been killed since it started the proxy."""
_LAST_WORDS_S: Final = 2.0
"""How long windows may take to read what is left when the proxy ends."""

_HEX: Final = frozenset("0123456789abcdef")

log = logging.getLogger("foretool.local")


class WindowNote(Struct, frozen=True):
    """One open window, as `foretool status` shows it."""

    pid: int
    folder: str
    client: str
    since: float


class ConfigFile(Protocol):
    """The file that the proxy follows; `server.reload.Reloader` is one."""

    refused: RefusedConfig | None

    def has_changed(self) -> bool: ...

    async def look(self) -> None: ...


class Windows:
    """All windows of one proxy. `gone` is set when the last one has left and none has come for some seconds."""

    def __init__(
        self, fronts: Fronts, profile: str, limit: int, turn: Turn, linger_s: Callable[[], float],
        refuse: Callable[[dict[str, Any]], str], file: ConfigFile,
        say_unknown_roots: Callable[[], str] = str,
    ) -> None:  # fmt: skip
        """`limit`: bytes of one message. `refuse`: says why a window with this greeting cannot join.
        `say_unknown_roots`: says which servers are not told the folders of the windows."""
        self.fronts = fronts
        self.profile = profile
        self.limit = limit
        self.turn = turn
        self.gone = asyncio.Event()
        self._refuse = refuse
        self._file = file
        self._say_unknown_roots = say_unknown_roots
        self._linger_s = linger_s
        self._open: set[Window] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._left = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    def service(self) -> Service:
        return Service(self._join, most=_MOST_WINDOWS, idle_s=None, is_raw=True, refuse=self._refuse_late)

    def status(self) -> Service:
        """Return the service by which other processes ask which windows are open."""
        return Service(lambda link, hello: QuestionTalk(link, self._answer), is_of_all_profiles=True)

    def _answer(self, question: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> None:
        notes = sorted((window.note() for window in self._open), key=lambda note: note.since)
        told = {"windows": notes, "roots": self._say_unknown_roots(), "refused": self._file.refused}
        reply({"pid": os.getpid(), **msgspec.to_builtins(told)})

    def expect_first(self, patience_s: float = _FIRST_S) -> None:
        """Give up after some time in which no window has come."""
        self._timer = asyncio.get_running_loop().call_later(patience_s, self.gone.set)

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, window: object) -> bool:
        return window in self._open

    def _refuse_late(self, hello: dict[str, Any]) -> str:
        return "this proxy ends" if self.gone.is_set() else self._refuse(hello)

    def _join(self, link: CallerLink, hello: Hello) -> Window:
        if self._timer is not None:
            self._timer.cancel()
        window = Window(self, link, hello)
        if self._file.has_changed():
            window.begin_after(asyncio.create_task(self._look()))
        self._open.add(window)
        log.info("window %d joined from %s; %d open", window.pid, window.folder, len(self._open))
        return window

    async def _look(self) -> None:
        """Who edits the config and then opens a client expects what the file says."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._file.look())
        await asyncio.wait([self._looking], timeout=LOOK_S)
        if not self._looking.done():
            log.warning("the changed config is not in force after %.0f s; a window begins without it", LOOK_S)
        else:
            self._looking.exception()  # housekeeping looks again, and says what is wrong

    def forget(self, window: Window) -> None:
        """Note that a window has gone."""
        self._open.discard(window)
        self._left.set()
        log.info("window %d has gone; %d open", window.pid, len(self._open))
        if not self._open and not self.gone.is_set():
            self._timer = asyncio.get_running_loop().call_later(self._linger_s(), self.gone.set)

    async def close(self) -> None:
        """Send every window what is left to send, and close it."""
        self.gone.set()
        if self._timer is not None:
            self._timer.cancel()
        for window in list(self._open):
            window.close()
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                while self._open:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            log.warning("%d windows did not read their last answers", len(self._open))


def read_window(said: dict[str, Any]) -> str:
    """Return the name that a window gives itself, "" where it gives none."""
    name = str(said.get("window"))
    return name if len(name) == 2 * WINDOW_BYTES and set(name) <= _HEX else ""


class Window:
    """One window: the talk on the local socket, and the channel of all of its requests."""

    def __init__(self, windows: Windows, link: CallerLink, hello: Hello) -> None:
        self._windows = windows
        self._link = link
        self._turn = windows.turn
        self._lines = LineSplitter(windows.limit)
        self._backlog: deque[bytes | bytearray] = deque()
        self._is_queued = False
        self._rests = False
        """It is not read, because it has said enough for now."""
        self._waiting: list[bytes] = []
        self._is_held = False
        self._unread = 0
        """Bytes sent since the window stopped reading."""
        self._has_ended = False
        self._since = time.time()
        pid = hello.said.get("pid")
        self.pid = pid if isinstance(pid, int) else 0
        self.folder = hello.folder or "?"
        self._before: asyncio.Task[None] | None = None
        self._front: Front = windows.fronts.open(
            "legacy", "stdio", self, profile=windows.profile, folder=self.folder, window=read_window(hello.said)
        )

    def note(self) -> WindowNote:
        info = getattr(self._front, "info", {})
        return WindowNote(self.pid, self.folder, str(info.get("name", ""))[:100], self._since)

    def begin_after(self, task: asyncio.Task[None]) -> None:
        """Handle what the window says once this has ended."""
        self._before = task
        task.add_done_callback(lambda _: self._begin())

    def _begin(self) -> None:
        self._before = None
        if self in self._windows:
            self._pace()

    # -- Talk: what the window says

    def receive(self, data: bytes) -> None:
        self._backlog.extend(self._lines.feed(data))
        if self._lines.too_long:
            refuse_oversized(self._lines, self)
        if not self._is_queued:
            self._work()

    def _work(self) -> None:
        """Handle some of the lines that have come."""
        self._is_queued = False
        until = time.perf_counter() + SLICE_S
        with self._turn:
            for _ in range(MOST_LINES):
                if not self._backlog or self._is_held or self._before is not None or self._front.in_flight >= MOST_OPEN:
                    break
                take_line(self._backlog.popleft(), self._front, self)
                if time.perf_counter() > until:
                    break  # searches take as long as a hundred calls
        self._pace()

    def _pace(self) -> None:
        """Read on, take more lines, or stop reading."""
        is_busy = self._is_held or self._before is not None or self._front.in_flight >= MOST_OPEN
        if self._backlog and not is_busy and not self._is_queued:
            self._is_queued = True
            asyncio.get_running_loop().call_soon(self._work)
        rests = is_busy or bool(self._backlog)
        if rests != self._rests:
            self._rests = rests
            (self._link.pause_reading if rests else self._link.resume_reading)()
        if self._has_ended and not rests and not self._front.in_flight:
            self.close()

    def hold(self, held: bool) -> None:
        self._is_held, self._unread = held, 0
        self._pace()

    def ended(self) -> bool:
        """The client has closed its output; it still gets what comes within `_LAST_WORDS_S`."""
        self._has_ended = True
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, self.close)
        asyncio.get_running_loop().call_soon(self._pace)
        return True

    def lost(self) -> None:
        self._backlog.clear()
        self._waiting.clear()
        self._front.close()
        self._windows.forget(self)

    def close(self) -> None:
        """Cancel what is open, send what is left to send, and close."""
        self._backlog.clear()
        self._front.close()
        self._flush()
        self._link.close()

    # -- Channel: what goes to the window

    def send(self, data: bytes) -> None:
        if self._is_held and data.startswith(DROPPED):
            return
        if len(data) > LARGE:  # to add a byte, or to join it with others, is to copy it
            self._flush()
            self._send_now(jsonrpc.without_line_breaks(data))
            self._send_now(b"\n")
            return
        self._waiting.append(jsonrpc.without_line_breaks(data) + b"\n")
        if len(self._waiting) == 1:
            self._turn.at_end(self._flush)
        elif len(self._waiting) >= MANY:
            self._flush()

    def finish(self, data: bytes, code: int | None) -> None:
        self.send(data)
        if self._rests or self._has_ended:
            self._pace()

    def poll(self) -> None:
        pass  # a socket stays open

    def end(self) -> None:
        self._pace()  # the specification asks for silence after a cancelled request

    def _flush(self) -> None:
        if not self._waiting:
            return
        data, self._waiting = b"".join(self._waiting), []
        self._send_now(data)

    def _send_now(self, data: bytes) -> None:
        if self._is_held:
            self._unread += len(data)
            if self._unread > MOST_UNREAD:
                log.warning("window %d does not read its answers and was dropped", self.pid)
                self._link.drop()
                return
        self._link.send(data)
