"""Serves the page on loopback until the process is asked to end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

import uvicorn

from foretool.server.config.loader import Config
from foretool.server.page.access import Door
from foretool.server.page.rendering import Words
from foretool.server.page.site import Site

LOOPBACK: Final = "127.0.0.1"
MOST_REQUESTS: Final = 64


def make_door(config: Config, words: Words) -> Door:
    """Return the page behind its door."""
    return Door(Site(config, words).app)


async def serve_page(config: Config, words: Words, port: int, tell: Callable[[str], None]) -> None:
    """Serve the page; `tell` gets the one-time link. Raises `OSError` if the port cannot be had."""
    door = make_door(config, words)
    listener = socket.create_server((LOOPBACK, port))
    server = uvicorn.Server(
        uvicorn.Config(
            door, log_config=None, access_log=False, server_header=False, lifespan="off", ws="none",
            limit_concurrency=MOST_REQUESTS, timeout_graceful_shutdown=1,
        )
    )  # fmt: skip
    with listener:
        tell(f"http://{LOOPBACK}:{listener.getsockname()[1]}{door.link}")
        await server.serve(sockets=[listener])
        await asyncio.sleep(0)
