"""A proxy's end of the local socket for tests, and callers in threads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from foretool.server.local.caller import ask
from foretool.server.local.places import ProxyIdentity
from foretool.server.local.server import LocalServer, QuestionTalk, Service

HERE = ProxyIdentity("/home/me/mcp.json", "", "/home/me/work")
STORAGE = "/home/me/foretool.sqlite3"


def echo(question: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> None:
    """Answer with the question."""
    reply({"echo": question})


def answering(answer: Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], None], **limits: Any) -> Service:
    return Service(lambda link, hello: QuestionTalk(link, answer), **limits)


@contextlib.asynccontextmanager
async def listening(
    folder: Path, services: Mapping[str, Service] | None = None, identity: ProxyIdentity = HERE
) -> AsyncIterator[LocalServer]:
    """Listen in `folder`; the service `hint` echoes unless the test names others."""
    server = LocalServer(identity, STORAGE, services or {"hint": answering(echo)})
    server.start({"FORETOOL_SOCKETS": str(folder)})
    try:
        yield server
    finally:
        await server.stop()


async def ask_in_thread(
    folder: Path,
    question: dict[str, Any],
    wanted: ProxyIdentity = HERE,
    service: str = "hint",
    patience_s: float = 10.0,
) -> dict[str, Any]:
    return await asyncio.to_thread(ask, str(folder), wanted, service, question, patience_s)
