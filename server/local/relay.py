"""A window: joins a running proxy over the local socket, or starts one, and passes its client's bytes both ways.

The process that a client starts is only this relay. The proxy behind it is a process of its own in a session of its
own, so whatever ends a window, also together with its process group, ends no other window. When the proxy ends, each
request without an answer gets an error, and the window goes on with another proxy: it joins one, or starts one.

The proxy begins as a fork of the first window, before anything but this file and its few imports is loaded: that costs
a millisecond, and starting another interpreter would cost ten times as much. This file runs in every window for as long
as the window is open, so it imports nothing that takes memory: no typing, no json, no re.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import time

from foretool.server.local.frames import EXIT, REFUSAL, WELCOME, WINDOW_BYTES, write_hello
from foretool.server.local.opening import Opening
from foretool.server.local.places import choose_sockets, name_lock
from foretool.server.local.unix import SocketFolder
from foretool.server.local.wire import Lines, Pending
from foretool.server.protocol.general_greeting import UNTOLD_LINE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
else:
    import _socket as socket  # what stands on it takes 1 MiB, in every window
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from foretool.server.local.places import ProxyIdentity

_MOST_TRIED: Final = 16
"""Running proxies that are asked, best first."""
_GREETING_S: Final = 5.0
"""How long a running proxy may take for its greeting."""
_START_S: Final = 60.0
"""How long a proxy that was just started may take for its greeting: an old storage file may have to be migrated."""
_LOCK_S: Final = 70.0
"""How long a window waits for another one that is starting a proxy."""
_LOOK_S: Final = 0.02
"""Pause between two looks while another window starts the proxy."""
_CHUNK: Final = 64 * 1024
_MOST_WAITING: Final = 1024 * 1024
"""When more bytes than this wait for one side, nothing more is read from the other."""
_WIDE: Final = 1024 * 1024
"""Bytes that our output pipe may hold, if the system permits."""
RESTARTS: Final = 5
_WITHIN_S: Final = 60.0
"""After this many ends of its proxy within this time, a window gives up."""

_LOST: Final = (
    "foretool: the proxy that this window shares has ended; the request had been sent, so it may have been carried out:"
    " check before calling again (the next call goes to another proxy)"
)


class Unshared(Exception):
    """This window cannot share a proxy, so its process serves the client alone; the message says why."""


class WindowEnded(Exception):
    """The window ends, with this exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Started(Exception):
    """Raised in the new process: it is the proxy that the window has forked, and has to serve from here on."""

    def __init__(self, first: socket.socket, lock: int) -> None:
        super().__init__()
        self.first = first
        """Leads to the window that has started us."""
        self.lock = lock
        """Closing this file lets the other windows look for us."""


class Finder:
    """Finds a proxy for this window."""

    def __init__(
        self, folder: str, wanted: ProxyIdentity, opening: Opening, environ: Mapping[str, str] = os.environ
    ) -> None:
        """`opening`: answers the client while a proxy starts."""
        self._folder = folder
        self._wanted = wanted
        self._opening = opening
        self._environ = environ
        self._window = os.urandom(WINDOW_BYTES).hex()
        self.refusals: dict[str, str] = {}
        """By name of a socket, why its proxy did not take this window in."""

    def find(self) -> socket.socket:
        """Return a connection to a proxy that has greeted us.

        Raises `Unshared`, `WindowEnded` when the new proxy could not start, and in the new proxy `Started`.
        """
        import fcntl

        hello = write_hello(self._wanted, self._environ, self._window)
        self.refusals.clear()
        until = time.monotonic() + _LOCK_S
        try:
            with SocketFolder(self._folder, make=True) as place:
                lock = place.open_lock(name_lock(self._wanted))
                try:
                    while (connection := self._join(place, hello)) is None:
                        if time.monotonic() > until:
                            raise Unshared("another window has been starting a proxy for a long time")
                        try:
                            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        except BlockingIOError:
                            self._opening.wait(0)
                            time.sleep(_LOOK_S)
                            continue
                        # Between our look and the lock another window may have started one.
                        return self._join(place, hello) or _start(hello, lock, self._opening)
                    return connection
                finally:
                    os.close(lock)
        except OSError as error:
            raise Unshared(str(error)) from None

    def _join(self, place: SocketFolder, hello: bytes) -> socket.socket | None:
        names = [name for name in choose_sockets(place.names(), self._wanted) if name not in self.refusals]
        for name in names[:_MOST_TRIED]:
            try:
                connection = place.dial(name, _GREETING_S)
            except TimeoutError:
                continue
            if connection is None:
                continue
            try:
                greeting = _greet(connection, hello, _GREETING_S)
            except OSError as error:
                greeting = str(error).encode()
            if greeting.startswith(WELCOME):
                return connection
            connection.close()
            self.refusals[name] = greeting.removeprefix(REFUSAL).rstrip(b'"}\n').decode(errors="replace")
        return None


def _greet(connection: socket.socket, hello: bytes, patience_s: float) -> bytes:
    """Send our greeting; return that of the proxy, b"" if it closed the socket. Raises `OSError`."""
    connection.settimeout(patience_s)
    connection.sendall(hello)
    line = b""
    while not line.endswith(b"\n") and len(line) < _CHUNK and (read := connection.recv(_CHUNK)):
        line += read
    return line


def _start(hello: bytes, lock: int, opening: Opening) -> socket.socket:
    """Start a proxy and return the connection to it. In the new process, raises `Started`."""
    opening.wait(0)  # on a busy machine the fork alone takes a tenth of a second
    ours, theirs = socket.socketpair()
    first = os.fork()
    if first == 0:
        # A session of its own, and no child of ours: nothing that ends a window's group or tree reaches it.
        os.setsid()
        if os.fork():
            os._exit(0)
        ours.close()
        _let_go_of_pipes()
        raise Started(theirs, os.dup(lock))
    os.waitpid(first, 0)
    theirs.close()
    opening.wait(_START_S, ours.fileno())
    greeting = _greet(ours, hello, _START_S)
    if greeting.startswith(WELCOME):
        return ours
    ours.close()
    if greeting.startswith(EXIT):
        raise WindowEnded(int(greeting[len(EXIT) :].rstrip(b"}\n")))
    raise Unshared(greeting.removeprefix(REFUSAL).rstrip(b'"}\n').decode(errors="replace") or "its proxy ended at once")


def _let_go_of_pipes() -> None:
    """Leave the client's pipes to the window; our stderr stays until the config is read."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)


class Relay:
    """Passes bytes between a client and a proxy until the client has gone."""

    def __init__(self, finder: Finder, opening: Opening, source: int = 0, output: int = 1) -> None:
        """`opening`: what was read of the client before there was a proxy."""
        self._finder = finder
        self._opening = opening
        self._source = source
        self._output = output
        self._proxy: socket.socket | None = None
        self._from_client, self._from_proxy = Lines(), Lines()
        self._pending = Pending()
        self._to_proxy = self._to_client = b""
        self._told: set[bytes] = set()
        """Ids of requests whose answers the client has: they were answered here, or sent once more to a new proxy."""
        self._greeting = b""
        """How the client was greeted."""
        self._is_untold = False
        """The proxy would have greeted it otherwise, and has to be told so."""
        self._is_skipping = False
        """The rest of the client's open line belongs to a proxy that has ended."""
        self._has_left = False
        """The client has closed our input."""
        self._ends: list[float] = []

    def run(self, proxy: socket.socket) -> int:
        """Relay until the client or the proxy has said its last. Returns the exit status."""
        _prepare(self._source, self._output)
        self._take(proxy)
        try:
            self._take_in(self._opening.hand_over())
            self._greeting = self._opening.answer
            if self._greeting and self._pending.first is not None:
                self._told.add(self._pending.first[1])
            while self._proxy is not None:
                self._wait()
        except WindowEnded as end:
            return end.status
        finally:
            if self._proxy is not None:
                self._proxy.close()
        return 0

    def _take(self, proxy: socket.socket) -> None:
        proxy.setblocking(False)
        self._proxy = proxy

    def _wait(self) -> None:
        """Wait until one of the three files can be read or written, and do so."""
        assert self._proxy is not None
        poll, proxy = select.poll(), self._proxy.fileno()
        if not self._has_left and len(self._to_proxy) < _MOST_WAITING:
            poll.register(self._source, select.POLLIN)
        wanted = select.POLLIN if len(self._to_client) < _MOST_WAITING else 0
        poll.register(proxy, wanted | (select.POLLOUT if self._to_proxy else 0))
        poll.register(self._output, select.POLLOUT if self._to_client else 0)
        found = poll.poll()
        if len(found) > 1:  # the proxy first: what the client sends must not go to one that has ended
            found.sort(key=lambda each: each[0] != proxy)
        for file, event in found:
            if file == self._output:
                if event & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                    raise WindowEnded(0)  # nobody reads our answers any more
                self._write()
            elif file == self._source:
                self._read_client()
            elif event & select.POLLOUT:
                self._send()
            if file == proxy and event & ~select.POLLOUT and self._proxy is not None:
                self._read_proxy()

    # -- client to proxy

    def _read_client(self) -> None:
        try:
            data = os.read(self._source, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # EIO from a terminal that is gone
            data = b""
        if not data:
            self._has_left = True
            self._send()
            return
        if self._is_skipping:
            _, found, data = data.partition(b"\n")
            if not found:
                return
            self._is_skipping = False
        self._take_in(data)

    def _take_in(self, data: bytes) -> None:
        """Handle what the client says. It leaves first: the proxy works on it while we look what it was."""
        self._to_proxy += data
        self._send()
        for line, is_cut in self._from_client.feed(data):
            self._pending.asked(line, is_cut)
        if self._is_untold and not self._from_client.open:
            self._to_proxy += UNTOLD_LINE
            self._is_untold = False
            self._send()

    def _send(self) -> None:
        if self._proxy is None:
            return
        try:
            while self._to_proxy:
                self._to_proxy = self._to_proxy[self._proxy.send(self._to_proxy) :]
            if self._has_left:
                self._proxy.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            pass  # reading says that the proxy has ended, after what it has still written

    # -- proxy to client

    def _read_proxy(self) -> None:
        assert self._proxy is not None
        try:
            data = self._proxy.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose_proxy()
            return
        if self._told:
            data = self._leave_out_told(data)
        else:
            for line, is_cut in self._from_proxy.feed(data):
                self._answered(line, is_cut)
        self._to_client += data
        self._write()

    def _answered(self, line: bytes, is_cut: bool) -> bytes | None:
        """Handle a line of the proxy. Returns the id if it answers a request."""
        ident, first = self._pending.answered(line, is_cut), self._pending.first
        if first is not None and ident == first[1] and not is_cut:
            self._opening.keep(first[0], line)
            self._is_untold = self._greeting not in (b"", line)
            self._greeting = self._greeting or line
        return ident

    def _leave_out_told(self, data: bytes) -> bytes:
        """Return what the client does not know yet, in whole lines while answers are left out."""
        *lines, rest = (self._from_proxy.open + data).split(b"\n")
        self._from_proxy = Lines()
        kept = b""
        for line in lines:
            ident = self._answered(line, is_cut=False)
            if ident is not None and ident in self._told:
                self._told.discard(ident)
                self._take_in(b"")
            else:
                kept += line + b"\n"
        if self._told:
            self._from_proxy.open = rest
            return kept
        list(self._from_proxy.feed(rest))
        return kept + rest

    def _write(self) -> None:
        try:
            while self._to_client:
                self._to_client = self._to_client[os.write(self._output, self._to_client) :]
        except BlockingIOError:
            pass
        except OSError:
            raise WindowEnded(0) from None  # nobody reads our answers any more

    # -- when the proxy ends

    def _lose_proxy(self) -> None:
        """Answer what the proxy left unanswered, and go on with another one."""
        assert self._proxy is not None
        self._proxy.close()
        self._proxy = None
        first = self._pending.hello
        is_greeted = first is not None and (first[1] not in self._pending.ids or first[1] in self._told)
        if self._from_proxy.open and not self._told:
            self._to_client += b"\n"  # the client has the beginning of this line
        told, self._told, self._from_proxy = self._told, set(), Lines()
        for ident in list(self._pending.ids):
            is_again = ident in self._pending.repeatable and ident not in told and not self._has_left
            if not is_again and (first is None or is_greeted or ident != first[1]):
                self._pending.forget(ident)
                if ident in told:
                    continue
                self._to_client += b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32603,"message":"%b"}}\n' % (
                    ident,
                    _LOST.encode(),
                )
        if self._has_left:
            self._write_all()
            return
        self._note_end()
        _say("the proxy that this window shares has ended; the window goes on with another one")
        try:
            self._take(self._finder.find())
        except Unshared as error:
            self._write_all()
            _say(f"no other proxy could be started ({error}); restart this server", "ERROR")
            raise WindowEnded(1) from None
        self._tell(is_greeted)

    def _note_end(self) -> None:
        now = time.monotonic()
        self._ends = [at for at in self._ends if now - at < _WITHIN_S] + [now]
        if len(self._ends) > RESTARTS:
            self._write_all()
            _say(f"{len(self._ends)} proxies have ended within {_WITHIN_S:g} s; restart this server", "ERROR")
            raise WindowEnded(1)

    def _tell(self, is_greeted: bool) -> None:
        """Tell a new proxy what the last one knew of the client, and the client that its tools may be others."""
        pending, lines = self._pending, list[bytes]()
        if pending.hello is not None:
            lines = [pending.hello[0], *(line for line, _ in pending.notes.values())]
            known = [ident for _, ident in (pending.hello, *pending.notes.values()) if ident]
            self._told = set(known) if is_greeted else set(known[1:])
            pending.ids.update(dict.fromkeys(known))
            if is_greeted:
                self._to_client += b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'
        lines += pending.repeatable.values()
        self._to_proxy = b"".join(line + b"\n" for line in lines)
        if self._from_client.is_cut:
            self._is_skipping, self._from_client = True, Lines()
        else:
            self._to_proxy += self._from_client.open
        self._send()
        self._write()

    def _write_all(self) -> None:
        os.set_blocking(self._output, True)
        self._write()


def _prepare(source: int, output: int) -> None:
    """Let no read or write of ours wait, where the client's files are pipes, and let answers go out in one piece."""
    for file in (source, output):
        mode = os.fstat(file).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            os.set_blocking(file, False)
    try:
        import fcntl

        fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _WIDE)
    except (ImportError, AttributeError, OSError):
        pass  # it is not a pipe, or not ours: it stays as it is


def _say(text: str, level: str = "WARNING") -> None:
    try:
        sys.stderr.write(f"foretool: {level}: {text}\n")
        sys.stderr.flush()
    except OSError:
        pass  # nobody reads it
