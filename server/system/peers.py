"""Tells which user stands at the other end of a Unix socket."""

from __future__ import annotations

import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
else:
    import _socket as socket  # what stands on it takes 1 MiB, in every window

_XUCRED = struct.Struct("II")
"""Version and user id, the first members of the BSD structure `xucred`."""
_SOL_LOCAL = 0
_LOCAL_PEERCRED = 1


def find_peer_user(connection: socket.socket) -> int | None:
    """Return the user id at the other end, as the system says it; None where the system cannot say.

    For a socket that was connected to a listener, this is the user who listens. Raises `OSError`.
    """
    if hasattr(socket, "SO_PEERCRED"):
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return int(user)
    if sys.platform == "darwin" or "bsd" in sys.platform:
        version, user = _XUCRED.unpack_from(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 128))
        return int(user) if version == 0 else None
    return None


def is_own_peer(connection: socket.socket) -> bool:
    """Return whether the other end of a Unix socket belongs to our own user, as far as the system tells."""
    if connection.family != getattr(socket, "AF_UNIX", None):
        return True  # a port has rules of its own
    try:
        user = find_peer_user(connection)
    except OSError:
        return False
    # Where the system cannot say it, the folder of the socket, which nobody else can enter, is what holds.
    return user is None or user == os.geteuid()
