"""Listens on a Unix socket on the running loop, and takes only callers of our own user."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from foretool.server.local.unix import Place
from foretool.server.system.peers import is_own_peer

AT_ONCE: Final = 8
"""Connections taken in one turn of the loop; clients of the proxy are served between two turns."""

PAUSE_S: Final = 1.0

log = logging.getLogger("foretool.local")


class Listener:
    """Listens until `close`, which also removes the socket's file."""

    def __init__(self, folder: str, name: str, admit: Callable[[], asyncio.Protocol | None]) -> None:
        """`admit` returns the protocol of a new connection, None to close it. Raises `OSError`."""
        self._place = Place(folder, make=True)
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
        for _ in range(AT_ONCE):
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
