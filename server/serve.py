"""Serves clients on stdio or over HTTP until the client has gone or the process is asked to end.

Both return with every upstream ended and every record written.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Final

from foretool.server.app import App
from foretool.server.config.loader import Config, host_and_port
from foretool.server.transports.client.stdio import StdioServer
from foretool.server.upstreams.launcher import message_limit
from foretool.storage.opening import exposure, open_store
from foretool.storage.stores import Store

GRACE_S: Final = 2.0
"""A client that closes our input still gets the answers that come within this time."""

log = logging.getLogger("foretool.app")


async def serve_stdio(config: Config, profile: str = "") -> None:
    """Serve the client that started this process, until it closes our input or we are asked to end."""
    with _open(config) as store:
        app = App(config, store)
        transport = StdioServer(app.router, profile, message_limit(config), app.turn)
        app.yield_to(transport.has_unread_output)
        ended = _stop_on_signals()
        async with app.running():
            await transport.start()
            await _wait_for_first(transport.closed, ended)
            if not ended.is_set():
                await app.clients.wait_for_answers(GRACE_S)
            await transport.close()


async def serve_http(config: Config, address: str = "") -> None:
    """Serve any number of clients on `address` ("" is the setting `bind`), until we are asked to end.

    Raises `BindError` when the address cannot be had, or needs a token that is not set.
    """
    from foretool.server.transports.client.http import HttpServer

    settings = config.settings
    host, port = host_and_port(address or settings.bind)
    with _open(config) as store:
        app = App(config, store)
        transport = HttpServer(
            app.router,
            host=host,
            port=port,
            token=settings.token,
            allowed_hosts=settings.allowed_hosts,
            allowed_origins=settings.allowed_origins,
            max_sessions=settings.max_sessions,
            session_idle_s=settings.session_idle_s,
            max_body=message_limit(config),
            profiles=lambda name: name in app.config.profiles,
            input_schema=app.annotated_schema,
        )
        ended = _stop_on_signals()
        async with app.running():
            serving = asyncio.create_task(transport.serve())
            await _wait_for_first(ended, transport.ready, serving)
            if transport.ready.is_set():
                log.info("serving on http://%s:%d/mcp", host, transport.port)
                await _wait_for_first(ended, serving)
            await transport.stop()
            await asyncio.wait([serving])
        # Only here: the task group inside `running` would wrap the error.
        serving.result()


def _open(config: Config) -> Store:
    """Open the store, and log who else could read it. Raises `StorageError`."""
    store = open_store(config.storage)
    for line in exposure(config.storage):
        log.warning("%s", line)
    return store


def _stop_on_signals() -> asyncio.Event:
    """Return an event that is set when the process is asked to end."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    return ended


async def _wait_for_first(*events: asyncio.Event | asyncio.Task[None]) -> None:
    """Wait until one of the events is set, or one of the tasks has ended in any way."""
    waits = [asyncio.ensure_future(event.wait()) if isinstance(event, asyncio.Event) else event for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for event, wait in zip(events, waits, strict=True):
        if isinstance(event, asyncio.Event):
            wait.cancel()
