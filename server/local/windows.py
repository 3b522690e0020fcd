"""The local socket on Windows: named pipes. Written from the documentation; nobody has run it on Windows yet.

A pipe ends with its process, so none is ever stale. Others may open a pipe for reading only (the system's default), and
so cannot greet; both sides compare the user of the other process with their own.
"""

from __future__ import annotations

import sys

# ruff: noqa: E402

# mypy reads the rest on Windows alone.
assert sys.platform == "win32"

import asyncio
import ctypes
import getpass
import os
import threading
import zlib
from collections.abc import Callable
from ctypes import wintypes
from typing import Final

from foretool.server.local.places import MOST_NAMES

_PIPES: Final = "\\\\.\\pipe\\"
_QUERY: Final = 0x1000
_TOKEN_QUERY: Final = 0x0008
_TOKEN_USER: Final = 1


class Stream:
    """A connection to a proxy of our own user."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "r+b", buffering=0)  # noqa: SIM115, PTH123 -- closed at exit; no file

    def send(self, data: bytes, patience_s: float) -> None:
        """Raises `OSError`."""
        _within(patience_s, lambda: self._file.write(data))

    def receive(self, patience_s: float) -> bytes:
        """Return what has come, b"" at the end. Raises `OSError`."""
        found: list[bytes] = []
        _within(patience_s, lambda: found.append(self._file.read(65536) or b""))
        return found[0]

    def fileno(self) -> int:
        return self._file.fileno()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


class Place:
    """Our user's pipes. The folder only tells apart sets of sockets, as a test or a container wants them."""

    def __init__(self, folder: str) -> None:
        self._prefix = _prefix(folder)

    def names(self) -> list[str]:
        """Return the names of our pipes, at most `MOST_NAMES`."""
        found = filter(lambda name: name.startswith(self._prefix), os.listdir(_PIPES))  # noqa: PTH208 -- no folder
        return [name.removeprefix(self._prefix) for name in found][:MOST_NAMES]

    def connect(self, name: str, patience_s: float) -> Stream | None:
        """Connect to a pipe. Returns None if nobody listens, or if somebody else does."""
        import msvcrt

        try:
            stream = Stream(f"{_PIPES}{self._prefix}{name}")
        except OSError:
            return None
        if _user_of(_peer(msvcrt.get_osfhandle(stream.fileno()), "GetNamedPipeServerProcessId")) == _own_user():
            return stream
        stream.__exit__()
        return None

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Listener:
    """Listens until `close`. asyncio must run on its proactor loop, which is the default on Windows."""

    def __init__(self, folder: str, name: str, admit: Callable[[], asyncio.Protocol | None]) -> None:
        self._admit = admit
        self._servers: list[asyncio.AbstractServer] = []
        loop = asyncio.get_running_loop()
        self._starting = loop.create_task(self._start(f"{_PIPES}{_prefix(folder)}{name}"))

    async def _start(self, path: str) -> None:
        loop = asyncio.get_running_loop()
        self._servers = await loop.start_serving_pipe(lambda: _Checked(self._admit()), path)  # type: ignore[attr-defined]

    async def close(self) -> None:
        await asyncio.wait([self._starting])
        for each in self._servers:
            each.close()


class _Checked(asyncio.Protocol):
    """Passes a connection on if our own user is at its other end."""

    def __init__(self, inner: asyncio.Protocol | None) -> None:
        self._inner = inner
        self._is_ours = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        pipe = transport.get_extra_info("pipe")
        self._is_ours = _user_of(_peer(pipe.fileno(), "GetNamedPipeClientProcessId")) == _own_user()
        if self._inner is None or not self._is_ours:
            transport.close()
        else:
            self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._inner is not None and self._is_ours:
            self._inner.data_received(data)

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._inner is not None:
            self._inner.connection_lost(exc)


def _prefix(folder: str) -> str:
    return f"foretool-{zlib.crc32(f'{getpass.getuser()}|{folder}'.encode()):08x}-"


def _within(patience_s: float, step: Callable[[], object]) -> None:
    """Run a step that blocks. Raises `TimeoutError`, and whatever the step raises."""
    errors: list[OSError] = []

    def run() -> None:
        try:
            step()
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(patience_s)
    if thread.is_alive():
        raise TimeoutError("the proxy did not answer in time")
    if errors:
        raise errors[0]


def _peer(pipe: int, function: str) -> int:
    """Return the process at the other end of a pipe. Raises `OSError`."""
    process = wintypes.ULONG()
    if not getattr(ctypes.windll.kernel32, function)(wintypes.HANDLE(pipe), ctypes.byref(process)):
        raise ctypes.WinError()
    return process.value


def _own_user() -> bytes:
    return _user_of(os.getpid())


def _user_of(process: int) -> bytes:
    """Return the security identifier of a process's user. Raises `OSError`."""
    kernel, security = ctypes.windll.kernel32, ctypes.windll.advapi32
    kernel.OpenProcess.restype = wintypes.HANDLE
    handle, token, size = kernel.OpenProcess(_QUERY, False, process), wintypes.HANDLE(), wintypes.DWORD()
    if not handle:
        raise ctypes.WinError()
    try:
        if not security.OpenProcessToken(wintypes.HANDLE(handle), _TOKEN_QUERY, ctypes.byref(token)):
            raise ctypes.WinError()
        buffer = ctypes.create_string_buffer(256)
        if not security.GetTokenInformation(token, _TOKEN_USER, buffer, len(buffer), ctypes.byref(size)):
            raise ctypes.WinError()
        # A pointer to the identifier comes first, then its attributes; the identifier has its length in byte 1.
        sid = ctypes.cast(buffer, ctypes.POINTER(ctypes.c_void_p)).contents.value or 0
        return ctypes.string_at(sid, 8 + 4 * ctypes.string_at(sid, 2)[1])
    finally:
        kernel.CloseHandle(wintypes.HANDLE(handle))
        if token:
            kernel.CloseHandle(token)
