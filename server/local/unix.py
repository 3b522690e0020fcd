"""The local socket on Linux, macOS and BSD: Unix sockets in a folder that only our own user can enter.

Only a socket in that folder is used, and only if our own user listens there: what anybody else says is not read. A
prompt hook and the relay of a window import this file, so it imports nothing that takes time or memory.
"""

from __future__ import annotations

import os
import stat

from foretool.server.local.places import MOST_NAMES, is_of_this_machine
from foretool.server.system.peers import find_peer_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
else:
    import _socket as socket  # what stands on it takes 1 MiB, in every window
if TYPE_CHECKING:  # typing takes more memory than all of a window's relay
    from types import TracebackType
    from typing import Final

BACKLOG: Final = 64
_LONGEST_PATH: Final = 100
"""Bytes of the path of a Unix socket; systems have 104 or 108 for it."""
_BY_HANDLE: Final = "/proc/self/fd"
"""Linux reaches a file through the handle of its folder, whatever stands at the folder's path by now."""


class LocalStream:
    """A connection to a proxy of our own user."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, data: bytes, patience_s: float) -> None:
        """Send all of `data`. Raises `OSError`, also after `patience_s` seconds."""
        self._connection.settimeout(patience_s)
        self._connection.sendall(data)

    def receive(self, patience_s: float) -> bytes:
        """Return what has come, b"" at the end. Raises `OSError`."""
        self._connection.settimeout(patience_s)
        return self._connection.recv(65536)

    def __enter__(self) -> LocalStream:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()


class SocketFolder:
    """The folder of the sockets, held open, so that no other folder can take its place."""

    def __init__(self, folder: str, *, make: bool = False) -> None:
        """`make`: make the folder if it is missing. Raises `OSError` for a link, and if others can enter it."""
        if make:
            os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 -- quicker to import
            try:  # noqa: SIM105 -- contextlib takes memory
                os.mkdir(folder, 0o700)  # noqa: PTH102 -- quicker to import
            except FileExistsError:
                pass
        self.folder = folder
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        found = os.fstat(self._handle)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            self.close()
            raise PermissionError(f"{folder}: others can enter it; run: chmod 700 {folder}, or remove it")

    def names(self) -> list[str]:
        """Return the names in the folder, at most `MOST_NAMES`."""
        return os.listdir(self._handle)[:MOST_NAMES]  # noqa: PTH208 -- by its handle

    def connect(self, name: str, patience_s: float) -> LocalStream | None:
        """Connect to a socket. Returns None if nobody listens, or if somebody else does. Raises `TimeoutError`."""
        connection = self.dial(name, patience_s)
        return LocalStream(connection) if connection is not None else None

    def dial(self, name: str, patience_s: float) -> socket.socket | None:
        """Connect as `connect` does, and return the socket itself."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(patience_s)
            connection.connect(self._path(name))
            if find_peer_user(connection) in (os.geteuid(), None):
                return connection
        except TimeoutError:
            connection.close()
            raise
        except OSError:
            pass  # a proxy that has ended, or one that takes no more
        connection.close()
        return None

    def listen(self, name: str) -> socket.socket:
        """Return a socket that listens under this name. Raises `OSError`."""
        import socket

        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Under another name at first: to a sweep, a socket that does not listen yet would be a stale one.
        first = f"{name}.new"
        try:
            listener.bind(self._path(first))
            os.chmod(first, 0o600, dir_fd=self._handle)
            listener.listen(BACKLOG)
            os.rename(first, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        except OSError:
            listener.close()
            try:  # noqa: SIM105
                self.remove(first)
            except OSError:
                pass
            raise
        listener.setblocking(False)
        return listener

    def open_lock(self, name: str) -> int:
        """Open the file that one process of ours locks while it starts a proxy. Raises `OSError`."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=self._handle)

    def read(self, name: str, most: int) -> bytes:
        """Return the beginning of a file, at most `most` bytes. Raises `OSError`."""
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._handle)
        try:
            return os.read(file, most)
        finally:
            os.close(file)

    def write(self, name: str, data: bytes) -> None:
        """Put a file in the place of another of this name. Raises `OSError`."""
        first = f"{name}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(first, flags, 0o600, dir_fd=self._handle)
        try:
            os.write(file, data)
        finally:
            os.close(file)
        os.rename(first, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def remove(self, name: str) -> None:
        """Remove a file of the folder. Raises `OSError`."""
        os.unlink(name, dir_fd=self._handle)

    def sweep(self) -> int:
        """Remove the sockets of this machine's proxies that were killed; returns how many. Nothing else is touched."""
        removed = 0
        for name in filter(is_of_this_machine, self.names()):
            try:
                if stat.S_ISSOCK(os.lstat(name, dir_fd=self._handle).st_mode) and self._is_deaf(name):
                    self.remove(name)
                    removed += 1
            except OSError:
                pass  # another process has removed it
        return removed

    def _is_deaf(self, name: str) -> bool:
        import socket

        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(self._path(name))
            except ConnectionRefusedError:
                return True
            except OSError:
                return False  # it listens, and has no room just now
            return False

    def _path(self, name: str) -> str:
        by_handle = f"{_BY_HANDLE}/{self._handle}"
        path = f"{by_handle if os.path.exists(by_handle) else self.folder}/{name}"  # noqa: PTH110 -- quicker to import
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise OSError(f"{path}: over {_LONGEST_PATH} bytes; set FORETOOL_SOCKETS to a folder with a shorter path")
        return path

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> SocketFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
