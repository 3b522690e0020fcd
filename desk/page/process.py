"""The process that serves the page behind `serve --http`, and the way to it.

The proxy starts it at the first request that a token opens, passes requests on over a socket in a folder that only our
user can enter, and ends it when nobody has looked for a while; the next visit starts it again. So nothing of the page
is imported by the proxy, and no long answer holds up its calls.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from foretool.desk.page.page_rules import HEADERS
from foretool.server.protocol.headers import Headers
from foretool.server.transports.client.http_request import Receive, Send

if TYPE_CHECKING:
    import httpx2

_START_S: Final = 30.0
"""How long the process may take to start."""
_ANSWER_S: Final = 60.0
"""A page that sends nothing for longer is given up; open pages get a comment more often."""
IDLE_S: Final = 900.0
"""How long the process stays after the last request; an open page hears of changes, which is a request."""
_MOST: Final = 64
"""Requests that it answers at the same time."""
VIEWER: Final = "x-foretool-viewer"
_PASSED: Final = (
    "host", "origin", "sec-fetch-site", "content-type", "accept", "hx-request", "hx-target", "hx-current-url",
    "if-none-match", "if-modified-since",
)  # fmt: skip
"""Headers that go on to the page; cookies and tokens stay here."""
_RETURNED: Final = ("content-type", "location", "etag", "last-modified", "content-length")


class ProcessFailed(Exception):
    """The page cannot be served; the message says why."""


class PageProcess:
    """Starts the process when it is first needed. `arguments`: those of `foretool page` that name the config."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._arguments = tuple(arguments)
        self._env = dict(env or {})
        self._starting = asyncio.Lock()
        self._folder: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._client: httpx2.AsyncClient | None = None
        self._open = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process that runs now, if one does."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def forward(
        self, method: str, path: str, query: bytes, headers: Headers, viewer: Mapping[str, Any], body: bytes,
        receive: Receive, send: Send,
    ) -> None:  # fmt: skip
        """Pass a request on for a viewer, and its answer back. Raises `ProcessFailed` before anything was sent."""
        import httpx2  # only a proxy that serves the page needs it for this

        if self._open >= _MOST:
            raise ProcessFailed("too many pages are open; close some and try again")
        passed = {name: value for name in _PASSED if (value := headers.get(name)) is not None}
        passed[VIEWER] = base64.b64encode(msgspec.json.encode(viewer)).decode()
        self._open += 1
        self._stay()
        has_begun = False
        try:
            client = await self._ready()
            target = client.base_url.copy_with(raw_path=_raw(path) + (b"?" + query if query else b""))
            async with client.stream(method, target, headers=passed, content=body or None) as answer:
                lines = {**HEADERS, **{key: answer.headers[key] for key in _RETURNED if key in answer.headers}}
                start = [(name.encode(), value.encode("latin-1")) for name, value in lines.items()]
                has_begun = True
                await send({"type": "http.response.start", "status": answer.status_code, "headers": start})
                await _pass_back(answer, receive, send)
        except httpx2.TransportError:
            if not has_begun:
                raise ProcessFailed("the page did not answer; try again") from None
            raise ConnectionError from None
        finally:
            self._open -= 1
            if not self._open:
                self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._leave)

    def _stay(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self) -> None:
        self._timer = None
        self._ending = asyncio.create_task(self._end_idle())

    async def _end_idle(self) -> None:
        async with self._starting:
            if not self._open:  # else somebody came in the meantime, and waits for the lock
                await self._end()

    async def close(self) -> None:
        """End the process, and begin nothing more."""
        self._stay()
        if self._ending is not None:
            await self._ending
        await self._end()

    async def _end(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            await self._process.wait()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    async def _ready(self) -> httpx2.AsyncClient:
        async with self._starting:
            if self._client is None or self.pid is None:
                await self._end()
                self._client = await self._start()
            return self._client

    async def _start(self) -> httpx2.AsyncClient:
        import httpx2

        self._folder = Path(tempfile.mkdtemp(prefix="foretool-page-"))  # of mode 0700
        path = self._folder / "page.sock"
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "foretool", "page", "--behind", str(path), *self._arguments,
            stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env={**os.environ, **self._env},
        )  # fmt: skip
        assert self._process.stdout is not None
        said = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_S):
                said = await self._process.stdout.readline()
        if said.strip() != b"ready":
            await self._end()
            raise ProcessFailed("the page could not be started; foretool page tells why")
        transport = httpx2.AsyncHTTPTransport(uds=str(path), limits=httpx2.Limits(max_connections=_MOST + 8))
        return httpx2.AsyncClient(transport=transport, base_url="http://page", timeout=_ANSWER_S)


def _raw(path: str) -> bytes:
    from urllib.parse import quote

    return quote(path, safe="/:@!$&'()*+,;=-._~").encode()


async def _pass_back(answer: httpx2.Response, receive: Receive, send: Send) -> None:
    """Pass the body of an answer back until it ends or the browser goes."""

    async def copy() -> None:
        async for part in answer.aiter_raw():
            await send({"type": "http.response.body", "body": part, "more_body": True})

    async def wait_until_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    copying, gone = asyncio.create_task(copy()), asyncio.create_task(wait_until_gone())
    done, waiting = await asyncio.wait({copying, gone}, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    if copying in done:
        copying.result()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
