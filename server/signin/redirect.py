"""Takes the browser's way back: on a port of this machine, or as an address that the user pastes.

Whoever can reach the port can send something there, so an answer counts only with the secret `state` of this sign-in.
Everything else is refused and waited on.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

_HOST: Final = "127.0.0.1"
_PATH: Final = "/callback"
_MOST_HEAD: Final = 16 * 1024
_HEAD_S: Final = 10.0
_MOST_AT_ONCE: Final = 16
"""Connections that are read at a time."""
_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>foretool</title>"
    "<style>body{{font:16px system-ui;margin:4em auto;max-width:32em}}</style><p>{}</p>"
)
_DONE: Final = "foretool has the answer. You can close this page and go back to the terminal."
_FOREIGN: Final = "This answer does not belong to the sign-in that foretool waits for. Nothing was done."


class RedirectError(Exception):
    """A redirect cannot be used, or none can be taken; the message says why and what to do."""


class Returned(Struct, frozen=True):
    """What the browser brings back from the authorization server."""

    code: str = ""
    state: str = ""
    iss: str | None = None
    error: str = ""
    description: str = ""
    """Words of the authorization server, as they came."""


def read_redirect(address: str, state: str) -> Returned:
    """Read the address that the browser was sent to. Raises `RedirectError` if it does not belong to this sign-in."""
    parts = urlsplit(address.strip())
    found = parse_qs(parts.query, keep_blank_values=True)
    if any(len(values) > 1 for values in found.values()):
        raise RedirectError("the address names something twice; copy it from the browser again")
    given = {name: values[0] for name, values in found.items()}
    if not given.get("state") or not ("code" in given or "error" in given):
        raise RedirectError(
            f"expected the whole address that the browser ended at (http://{_HOST}:.../callback?code=...&state=...)"
        )
    import hmac

    if not hmac.compare_digest(given["state"].encode(), state.encode()):
        raise RedirectError("the address belongs to another sign-in; use the link of this one")
    return Returned(
        given.get("code", ""), given["state"], given.get("iss"), given.get("error", ""),
        given.get("error_description", ""),
    )  # fmt: skip


class RedirectReceiver:
    """Listens on a port of this machine for the answer to one sign-in."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._state = ""
        self._answer: asyncio.Future[Returned] = asyncio.get_running_loop().create_future()
        self._open = 0

    @property
    def uri(self) -> str:
        """The address that the authorization server sends the browser to."""
        return f"http://{_HOST}:{self.port}{_PATH}"

    def expect(self, state: str) -> None:
        """Take answers with this `state` from now on."""
        self._state = state

    def give(self, address: str) -> None:
        """Take an address that the user has pasted. Raises `RedirectError`."""
        self._take(read_redirect(address, self._state))

    async def wait(self) -> Returned:
        """Return the answer as soon as it has come."""
        return await asyncio.shield(self._answer)

    def _take(self, returned: Returned) -> None:
        if not self._answer.done():
            self._answer.set_result(returned)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _MOST_AT_ONCE:
                async with asyncio.timeout(_HEAD_S):
                    status, text = self._answer_to(await reader.readuntil(b"\r\n\r\n"))
                    writer.write(_response(status, text))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open -= 1
            writer.close()

    def _answer_to(self, head: bytes) -> tuple[str, str]:
        method, _, rest = head.decode("latin-1").partition(" ")
        target = rest.partition(" ")[0]
        if method != "GET" or urlsplit(target).path != _PATH or not self._state:
            return "404 Not Found", _FOREIGN
        try:
            self._take(read_redirect(target, self._state))
        except RedirectError:
            return "400 Bad Request", _FOREIGN
        return "200 OK", _DONE


@contextlib.asynccontextmanager
async def receiving(port: int, preferred: int = 0) -> AsyncIterator[RedirectReceiver]:
    """Listen as long as the block lasts. `port`: 0 for a free one, then `preferred` if that is free. Raises
    `RedirectError` when the port is taken: whoever has it would get the answer."""
    receiver = RedirectReceiver(port)
    server = None
    if not port and preferred:
        with contextlib.suppress(OSError):
            server = await asyncio.start_server(receiver._serve, _HOST, preferred, limit=_MOST_HEAD)
    if server is None:
        try:
            server = await asyncio.start_server(receiver._serve, _HOST, port, limit=_MOST_HEAD)
        except OSError as error:
            why = "another program has it" if error.errno == errno.EADDRINUSE else error.strerror
            raise RedirectError(
                f"port {port} of {_HOST} cannot be had ({why}); end that program, or change redirect_port and the"
                " client that you registered"
            ) from None
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
        await asyncio.sleep(0)
    finally:
        server.close()
        await server.wait_closed()


def _response(status: str, text: str) -> bytes:
    body = _PAGE.format(text).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
