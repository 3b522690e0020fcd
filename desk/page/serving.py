"""Serves the page on loopback until the process is asked to end."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import sys
import threading
from collections.abc import Callable
from typing import Final

import msgspec
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from foretool.desk.page.access import PageDoor
from foretool.desk.page.process import VIEWER as PASSED_VIEWER
from foretool.desk.page.rendering import Words
from foretool.desk.page.site import Site
from foretool.desk.page.viewers import VIEWER, Viewer
from foretool.server.config.loader import Config

_LOOPBACK: Final = "127.0.0.1"
_MOST_REQUESTS: Final = 64


def make_door(config: Config, words: Words) -> PageDoor:
    """Return the page behind its door."""
    return PageDoor(Site(config, words).app)


async def serve_page(config: Config, words: Words, port: int, tell: Callable[[str], None]) -> None:
    """Serve the page; `tell` gets the one-time link. Raises `OSError` if the port cannot be had."""
    door = make_door(config, words)
    listener = socket.create_server((_LOOPBACK, port))
    server = uvicorn.Server(
        uvicorn.Config(
            door, log_config=None, access_log=False, server_header=False, lifespan="off", ws="none",
            limit_concurrency=_MOST_REQUESTS, timeout_graceful_shutdown=1,
        )
    )  # fmt: skip
    with listener:
        tell(f"http://{_LOOPBACK}:{listener.getsockname()[1]}{door.link}")
        await server.serve(sockets=[listener])
        await asyncio.sleep(0)


class Behind:
    """The page as a proxy serves it: each request says who looks."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        said = dict(scope["headers"]).get(PASSED_VIEWER.encode(), b"")
        viewer = msgspec.json.decode(base64.b64decode(said), type=Viewer)
        await self._app({**scope, VIEWER: viewer, "root_path": ""}, receive, send)


async def serve_behind(config: Config, words: Words, path: str, tell: Callable[[str], None]) -> None:
    """Serve the page on a Unix socket until the process that started this one has gone."""
    server = uvicorn.Server(
        uvicorn.Config(
            Behind(Site(config, words).app), log_config=None, access_log=False, server_header=False, lifespan="off",
            ws="none", timeout_graceful_shutdown=1,
        )
    )  # fmt: skip
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(64)
        tell("ready")
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        # The end of our input means that the proxy has gone, however it went.
        threading.Thread(target=_wait_for_end, args=(loop, ended), daemon=True).start()
        await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving


def _wait_for_end(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
    while sys.stdin.buffer.read(1024):
        pass
    with contextlib.suppress(RuntimeError):  # the loop has ended already
        loop.call_soon_threadsafe(ended.cancel)
