"""The proxy's end of the local socket: greets callers of our own user and hands each to the service that it wants.

Nothing that a caller does may cost the proxy's clients anything: connections, bytes and times are limited, and a caller
that does not read is dropped. Without a folder that is ours alone there is no socket, and the proxy serves without it.

`LocalListener` listens on a Unix socket on the running loop, and takes only callers of our own user.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from msgspec import Struct

from foretool._version import __version__
from foretool.server.local.frames import FORM, MOST_BYTES, MOST_GREETING, decode, encode, refuse_greeting
from foretool.server.local.places import ProxyIdentity, find_folder, name_socket, serves
from foretool.server.local.unix import SocketFolder
from foretool.server.system.peers import is_own_peer

_AT_ONCE: Final = 8
"""Connections taken in one turn of the loop; clients of the proxy are served between two turns."""

PAUSE_S: Final = 1.0

log = logging.getLogger("foretool.local")


class LocalListener:
    """Listens until `close`, which also removes the socket's file."""

    def __init__(self, folder: str, name: str, admit: Callable[[], asyncio.Protocol | None]) -> None:
        """`admit` returns the protocol of a new connection, None to close it. Raises `OSError`."""
        self._place = SocketFolder(folder, make=True)
        try:
            self._place.sweep()
            self._socket = self._place.listen(name)
        except OSError:
            self._place.close()
            raise
        self._name = name
        self._admit = admit
        self._tasks: set[asyncio.Task[object]] = set()
        self._loop = asyncio.get_running_loop()
        self._resuming: asyncio.TimerHandle | None = None
        self._listen()

    async def close(self) -> None:
        if self._resuming is not None:
            self._resuming.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        with suppress(OSError):
            self._place.remove(self._name)
        self._place.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("the local socket takes no callers for a moment: %s", error)
                self._pause()
                return
            protocol = self._admit() if is_own_peer(connection) else None
            if protocol is None:
                connection.close()
                continue
            task = self._loop.create_task(self._serve(protocol, connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _pause(self) -> None:
        """Listen again after a while: with no file left, asking again at once would keep the loop busy."""
        self._loop.remove_reader(self._socket.fileno())
        self._resuming = self._loop.call_later(PAUSE_S, self._listen)

    def _listen(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._accept)

    async def _serve(self, protocol: asyncio.Protocol, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, connection)
        except OSError as error:
            connection.close()
            protocol.connection_lost(error)


MOST_CALLERS: Final = 256
"""Connections at a time, of all services."""
GREETING_S: Final = 2.0
"""How long a caller may take for its greeting."""
MOST_UNREAD: Final = 1024 * 1024
"""When a caller leaves more bytes than this unread, its talk is told (`Talk.hold`)."""


class Hello(Struct, frozen=True):
    """What a caller's greeting says."""

    profile: str
    folder: str
    said: dict[str, Any]
    """The whole greeting, for what a service alone reads."""


class CallerLink(Protocol):
    """A caller, as its service sees it."""

    def send(self, line: bytes) -> None:
        """Send one line, which must end with a newline."""

    def close(self) -> None:
        """Send what is left to send, then close."""

    def drop(self) -> None:
        """Close at once; what the caller has not read is lost."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Talk(Protocol):
    """The conversation of one caller with a service."""

    def receive(self, line: bytes) -> None:
        """Handle one line, without its newline; of a raw service, whatever has come. A `ValueError` ends the talk."""

    def ended(self) -> bool:
        """Note that the caller will send no more. Returns whether it still waits for answers."""

    def hold(self, held: bool) -> None:
        """Note that the caller has stopped reading (`held`), or reads again."""

    def lost(self) -> None:
        """Note that the caller has gone. Called once."""


class Service(Struct, frozen=True):
    """One kind of conversation that callers may ask for, with its limits."""

    open: Callable[[CallerLink, Hello], Talk]
    limit: int = MOST_BYTES
    """Bytes of a message."""
    most: int = 32
    """Connections at a time."""
    idle_s: float | None = 10.0
    """A caller that says nothing for so long is dropped; None keeps it."""
    is_raw: bool = False
    """The talk gets the bytes as they come, and limits its messages itself."""
    is_of_all_profiles: bool = False
    """A caller may leave open which profile it wants."""
    refuse: Callable[[dict[str, Any]], str] = lambda hello: ""
    """Says why a caller with this greeting cannot be served; "" if it can."""


class LocalServer:
    """Listens for callers until `stop`."""

    def __init__(self, identity: ProxyIdentity, storage: str, services: Mapping[str, Service]) -> None:
        self._identity = identity
        self._storage = storage
        self.services = services
        self._callers: set[LocalCaller] = set()
        self._listener: LocalListener | None = None

    def start(self, environ: Mapping[str, str] = os.environ) -> None:
        """Begin to listen. Where that cannot be, say so in the log and go on without."""
        folder = find_folder(environ)
        if folder is None:
            log.debug("no folder for a local socket")
            return
        name = name_socket(self._identity, os.urandom(4).hex())
        try:
            self._listener = LocalListener(folder, name, self._admit)
        except OSError as error:
            log.warning("no local socket, so the prompt hook ranks by words alone: %s", error)

    async def adopt(self, connection: socket.socket) -> None:
        """Serve a caller that is connected already."""
        await asyncio.get_running_loop().connect_accepted_socket(lambda: LocalCaller(self, self._callers), connection)

    async def stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()

    async def stop(self) -> None:
        """Stop listening and drop every caller."""
        await self.stop_listening()
        for caller in list(self._callers):
            caller.drop()

    def _admit(self) -> LocalCaller | None:
        """Return the protocol of a new connection; None if there are too many."""
        return LocalCaller(self, self._callers) if len(self._callers) < MOST_CALLERS else None

    def greet(self, hello: dict[str, Any]) -> tuple[dict[str, Any], Service | None]:
        """Return the greeting that answers a caller's, and the service that it gets."""
        wanted = str(hello.get("wants"))
        config, folder = (str(hello.get(key) or "") for key in ("config", "folder"))
        service = self.services.get(wanted)
        is_any = service is not None and service.is_of_all_profiles and hello.get("profile") is None
        profile = None if is_any else str(hello.get("profile") or "")
        problem = refuse_greeting(hello) or serves(self._identity, config, profile, folder)
        if not problem and service is None:
            problem = f"no service {wanted[:40]!r}"
        if not problem and service is not None and self._count(service) >= service.most:
            problem = "too many callers"
        if not problem and service is not None:
            problem = service.refuse(hello)
        if problem:
            return {"foretool": FORM, "error": problem}, None
        own = self._identity
        said = {"version": __version__, "pid": os.getpid(), "config": own.config, "storage": self._storage}
        return {"foretool": FORM, **said, "profile": own.profile, "folder": own.folder}, service

    def _count(self, service: Service) -> int:
        return sum(caller.service is service for caller in self._callers)


class LocalCaller(asyncio.Protocol):
    """One connection to the local socket."""

    def __init__(self, server: LocalServer, callers: set[LocalCaller]) -> None:
        self._server = server
        self._callers = callers
        callers.add(self)
        self.service: Service | None = None
        self._talk: Talk | None = None
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._timer: asyncio.TimerHandle | None = None
        self._is_ended = False
        """Whether we have ended the talk. A caller that has gone before our answer is still heard."""

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=MOST_UNREAD)
        self._expect_within(GREETING_S)

    def data_received(self, data: bytes) -> None:
        if self._talk is not None and self.service is not None and self.service.is_raw:
            self._talk.receive(data)
            return
        try:
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._receive(line)
                if self._is_ended:
                    return
            if len(self._rest) > (0 if self.service is not None and self.service.is_raw else self._limit):
                raise ValueError(f"a message of over {self._limit} bytes")  # noqa: TRY301 -- one way to end
        except ValueError as error:
            log.debug("a caller on the local socket was dropped: %s", error)
            self.drop()

    def eof_received(self) -> bool:
        return self._talk is not None and self._talk.ended()

    def pause_writing(self) -> None:
        if self._talk is not None:
            self._talk.hold(True)

    def resume_writing(self) -> None:
        if self._talk is not None:
            self._talk.hold(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._callers.discard(self)
        self._expect_within(None)
        self._transport = None
        talk, self._talk = self._talk, None
        if talk is not None:
            talk.lost()

    # -- Link

    def send(self, line: bytes) -> None:
        if self._transport is not None:
            self._transport.write(line)

    def close(self) -> None:
        self._is_ended = True
        if self._transport is not None:
            self._transport.close()

    def drop(self) -> None:
        self._is_ended = True
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    # -- what a caller says

    @property
    def _limit(self) -> int:
        return self.service.limit if self.service is not None else MOST_GREETING

    def _receive(self, line: bytes) -> None:
        if len(line) > self._limit:
            raise ValueError(f"a message of over {self._limit} bytes")
        if self._talk is None:
            self._greet(line)
        elif self.service is not None and self.service.is_raw:
            raise ValueError("more than a greeting")
        else:
            self._talk.receive(line)
        if self.service is not None:
            self._expect_within(self.service.idle_s)

    def _greet(self, line: bytes) -> None:
        hello = decode(line)
        greeting, service = self._server.greet(hello)
        self.send(encode(greeting))
        if service is None:
            self.close()
            return
        self.service = service
        known = {key: str(hello.get(key) or "") for key in ("profile", "folder")}
        self._talk = service.open(self, Hello(**known, said=hello))

    def _expect_within(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None and self._transport is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.drop)


class QuestionTalk:
    """A conversation in which each line is a question. `answer` gets it, and a callback that takes the answer."""

    def __init__(
        self, link: CallerLink, answer: Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], None]
    ) -> None:
        self._link = link
        self._answer = answer

    def receive(self, line: bytes) -> None:
        message = decode(line)
        ident, question = message.get("id"), message.get("ask")
        if not isinstance(ident, int) or not isinstance(question, dict):
            raise ValueError("a message that asks nothing")
        try:
            self._answer(question, lambda answer: self._link.send(encode({"id": ident, "answer": answer})))
        except ValueError as error:
            self._link.send(encode({"id": ident, "error": str(error)[:200]}))
        except Exception:  # the boundary: a question that fails must not end the proxy
            log.exception("a question on the local socket failed")
            self._link.send(encode({"id": ident, "error": "internal error"}))

    def hold(self, held: bool) -> None:
        if held:
            self._link.drop()

    def ended(self) -> bool:
        return False

    def lost(self) -> None:
        pass  # an answer that comes later goes nowhere
