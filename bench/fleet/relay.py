"""A TCP relay on loopback, in a process of its own, that delivers each piece of data exactly some time late.

Threads that sleep are late by a tenth of a millisecond; the timers of an event loop, as `bench.storage.slow_network`
has them, by more than one.
"""

from __future__ import annotations

import multiprocessing
import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import parse_qs, urlsplit


@contextmanager
def relaying(address: str, round_trip_s: float) -> Iterator[str]:
    """Deliver to the server of a `postgresql://` address until the block ends; give the address of the relay."""
    parts = urlsplit(address)
    folder = parse_qs(parts.query).get("host", [""])[0]
    port = parts.port or 5432
    target: Any = f"{folder}/.s.PGSQL.{port}" if folder.startswith("/") else (parts.hostname, port)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_relay, args=(target, round_trip_s / 2, there), daemon=True)
    process.start()
    try:
        user = parts.username or "postgres"
        yield f"postgresql://{user}@127.0.0.1:{here.recv()}{parts.path}"
    finally:
        process.terminate()
        process.join()


def _relay(target: Any, delay_s: float, told: Connection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        told.send(server.getsockname()[1])
        while True:
            near, _ = server.accept()
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if isinstance(target, str):
                far = socket.socket(socket.AF_UNIX)
                far.connect(target)
            else:
                far = socket.create_connection(target)
                far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink in ((near, far), (far, near)):
                pieces: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                threading.Thread(target=_take, args=(source, pieces, delay_s), daemon=True).start()
                threading.Thread(target=_deliver, args=(sink, pieces), daemon=True).start()


def _take(source: socket.socket, pieces: queue.SimpleQueue[tuple[float, bytes]], delay_s: float) -> None:
    data = b"-"
    while data:
        try:
            data = source.recv(65_536)
        except OSError:
            data = b""
        pieces.put((time.monotonic() + delay_s, data))


def _deliver(sink: socket.socket, pieces: queue.SimpleQueue[tuple[float, bytes]]) -> None:
    while True:
        due, data = pieces.get()
        time.sleep(max(due - time.monotonic(), 0.0))
        with suppress(OSError):
            if data:
                sink.sendall(data)
                continue
            sink.shutdown(socket.SHUT_WR)
        return
