"""The socket that clients connect to: of a host and port, or a Unix socket that only our own user can reach."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from foretool.server.config.addresses import Address
from foretool.server.transports.client.http_rules import BindError

BACKLOG: Final = 2048
DEFER_S: Final = 10
"""How long Linux waits for the first byte of a connection before we hear of it."""
UNREAD_BYTES: Final = 128 * 1024
"""What the system keeps of a connection that we do not read; left to itself, Linux keeps up to 6 MiB."""
_LONGEST_PATH: Final = 100
"""Bytes of the path of a Unix socket; systems have 104 or 108 for it."""


class Listener:
    """A bound socket. `close` also removes the file of a Unix socket, if it is still ours."""

    def __init__(self, address: Address) -> None:
        """Raises `BindError` when the address cannot be had."""
        self.address = address
        self.socket = _bind_path(Path(address.path)) if address.path else _bind_port(address)
        self._file = Path(address.path).lstat() if address.path else None
        self.socket.setblocking(False)
        if not address.path:
            self.address = address._replace(port=self.socket.getsockname()[1])

    def close(self) -> None:
        self.socket.close()
        if self._file is not None:
            with contextlib.suppress(OSError):
                now = Path(self.address.path).lstat()
                if (now.st_ino, now.st_dev) == (self._file.st_ino, self._file.st_dev):
                    Path(self.address.path).unlink()


def _bind_port(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio switches Nagle's delay off only where the protocol is named; the delay costs 40 ms a reply.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if DEFER_S and hasattr(socket, "TCP_DEFER_ACCEPT"):
            # The system keeps connections that send nothing to itself, so that opening thousands costs us nothing.
            with contextlib.suppress(OSError):  # some sandboxes have no such option
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEFER_S)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UNREAD_BYTES)
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        raise BindError(f"cannot listen on {address}: {error.strerror}; choose another address in bind") from None
    return listener


def _bind_path(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise BindError(f"bind unix: the path has more than {_LONGEST_PATH} bytes; choose a shorter one")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _own_folder(path.parent):
            _remove_stale(path)
            listener.bind(str(path))
            path.chmod(0o600)
            listener.listen(BACKLOG)  # before the folder is free again: to the next start, deaf sockets are stale
    except OSError as error:
        listener.close()
        raise BindError(f"cannot listen on unix:{path}: {error.strerror}; choose another path in bind") from None
    except BindError:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def _own_folder(folder: Path) -> Iterator[None]:
    """Make the folder, or check that nobody else can enter it, and keep other starts of ours out for a moment."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise BindError(
                f"bind unix: others can enter {folder}; choose a folder that is yours alone (`mkdir -m 700`)"
            )
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _remove_stale(path: Path) -> None:
    """Remove the socket of a process that has ended. Raises `BindError` for everything else that stands there."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        raise BindError(f"bind unix: {path} exists and is not a socket of ours; choose another path in bind")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            raise BindError(
                f"bind unix: {path}: {error.strerror or 'it does not answer'}; stop who serves it"
            ) from None
    raise BindError(f"bind unix: another process serves {path}; stop it, or choose another path in bind")
