"""A proxy's end of the local socket for tests, and callers in threads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from foretool.server.local.caller import ask
from foretool.server.local.places import Identity
from foretool.server.local.server import Answering, LocalServer, Service

HERE = Identity("/home/me/mcp.json", "", "/home/me/work")
STORAGE = "/home/me/foretool.sqlite3"


def echo(question: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> None:
    """Answer with the question."""
    reply({"echo": question})


def answering(answer: Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], None], **limits: Any) -> Service:
    return Service(lambda link, hello: Answering(link, answer), **limits)


@contextlib.asynccontextmanager
async def listening(
    folder: Path, services: Mapping[str, Service] | None = None, identity: Identity = HERE
) -> AsyncIterator[LocalServer]:
    """Listen in `folder`; the service `hint` echoes unless the test names others."""
    server = LocalServer(identity, STORAGE, services or {"hint": answering(echo)})
    server.start({"FORETOOL_SOCKETS": str(folder)})
    try:
        yield server
    finally:
        await server.stop()


async def ask_in_thread(
    folder: Path, question: dict[str, Any], wanted: Identity = HERE, service: str = "hint", patience_s: float = 10.0
) -> dict[str, Any]:
    return await asyncio.to_thread(ask, str(folder), wanted, service, question, patience_s)
