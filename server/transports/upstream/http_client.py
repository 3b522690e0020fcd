"""What the links to remote servers share: the HTTP client, and the words for its failures.

No text made here contains the value of a header, or more of a URL than scheme, host and port: they may be secrets.

It also tells from what a server answers whether it has forgotten our session. The specification says 404. Real servers
also say it with 400, 401 or 503, or in the JSON-RPC error of a request, and in words of their own. A request is sent
again only if its server refused it for that reason, so nothing runs twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import httpcore2
import httpx2
from msgspec import UNSET

from foretool._version import __version__
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.headers import SESSION
from foretool.server.protocol.jsonrpc import BadMessage, Message
from foretool.server.system.http_clients import UnusableProxy, make_client
from foretool.server.transports.allowance import Allowance
from foretool.server.transports.tasks import SLICE_S
from foretool.server.transports.upstream.base import Authorizer, LinkError

_LOSS: Final = (
    rb"not found|could not find|cannot find|unknown|unrecogni[sz]ed|invalid|not valid|no valid|expired|no longer"
    rb"|not exist|doesn't exist|no such|no transport|missing|required|terminated|closed|inactive|not active|has ended"
)
_WORDS: Final = re.compile(
    rb"(?i)(?:%b)[^.\r\n]{0,60}\bsession|session[^.\r\n]{0,60}(?:%b)|server not initiali[sz]ed" % (_LOSS, _LOSS)
)
_FAILING: Final = frozenset({500, 502, 504})
"""Statuses of a server that may have begun to carry out the request."""

LOST: Final = "its session had expired"


def names_lost_session(text: bytes | bytearray) -> bool:
    """Return whether an error text says that a session is unknown or over."""
    return _WORDS.search(text) is not None


def error_in(body: bytes | bytearray) -> Message | None:
    """Return the JSON-RPC error in the body of an HTTP error; None if the body is not one."""
    try:
        message = jsonrpc.decode(body)
    except BadMessage:
        return None
    return message if message.is_reply and message.error is not UNSET else None


def classify_refusal(
    status: int, body: bytes | bytearray, request: int | None = None
) -> Literal["lost", "doubtful", "kept"]:
    """Return whether a refused request means that our session is lost, kept, or in doubt. `request`: its id. Errors
    that a method or tool may have given, and errors of a failing server, leave it in doubt: both may be about another
    session."""
    error = error_in(body)
    is_of_request = error is not None and error.id is not None and str(error.id) == str(request)
    if status == 404 and not is_of_request:
        return "lost"
    if not names_lost_session(body):
        return "kept"
    return "doubtful" if is_of_request or status < 400 or status in _FAILING else "lost"


_CONNECT_S: Final = 10.0
_WRITE_S: Final = 60.0
_NOTICE_S: Final = 30.0
"""Longest wait for a server to accept a message that gets no reply."""
IDLE_S: Final = 4.0
"""An unused connection is closed after this time. Node and uvicorn close theirs after 5 s, and a request that is sent
into a closing connection is lost."""

_PIECE, _LEAST_PIECE = 16 * 1024, 2 * 1024
"""Bytes that are read at once: fewer where the last ones took long. As many interim answers (`100 Continue`) take 10 ms
and 1 ms, and the HTTP client gives the loop no turn between two of them."""
_LONG_S: Final = 0.002
"""Bytes that take longer than this are followed by fewer."""
_INFLATED: Final = {"gzip": 31, "x-gzip": 31, "deflate": 47}
"""Compressions that are undone, with zlib's number for each."""
_SKIPPED: Final = 64 * 1024
_SKIP_S: Final = 1.0
"""How much of a body that nobody needs is read, and for how long."""
_REDIRECTS: Final = 5
"""How many redirects in a row are followed; real servers need one or two."""
_SEE_OTHER: Final = 303
"""The redirect that may come after a POST was carried out, so that a POST must not be sent again."""
_GONE: Final = (404, 410)

# At lower levels these libraries log URLs and header lines, which contain secrets.
for _library in ("httpx2", "httpcore2"):
    logging.getLogger(_library).setLevel(logging.WARNING)

_WAYS_OUT: Final = {
    401: "it wants another Authorization; put a valid one into headers of this server in the config",
    403: "refused: its credentials in headers do not suffice",
    404: "nothing is served there: check the path of url",
    405: 'takes no POST there: check the path of url, or set type to "sse" if it is a server of 2024-11-05',
    407: "the proxy on the way needs authorisation",
    413: "the message is too large for it",
    429: "too many requests: try again later",
}


_WANTS_CERTIFICATE: Final = re.compile(r"(?i)alert (?:certificate required|bad certificate|unknown ca)")
"""What TLS says where the other end refuses our certificate, or its absence."""

Certificate = tuple[str, str] | None
"""A client certificate: the file that holds it, and the file with its key, "" if that is the same."""


class RequestFailed(Exception):
    """A request will get no reply; the message says why in one line."""


class SendRefused(RequestFailed):
    """The server has not carried out the request: it wants a sign-in, or sends us elsewhere."""


class SessionLost(RequestFailed):
    """The server does not know our session, and has not carried out the request."""


class AuthorizedClient:
    """The HTTP client of one link: it shows the token of an `Authorizer`, and sends a refused request once more if that
    has another token by then. It follows redirects within the origin alone, since our headers hold credentials."""

    def __init__(
        self, url: str, headers: Mapping[str, str], authorizer: Authorizer | None = None, cert: Certificate = None,
        allowance: Allowance | None = None,
    ) -> None:  # fmt: skip
        self._http = new_client(url, headers, cert) if cert else new_client(url, headers)
        self._allowance = allowance or Allowance()
        _pace(self._http, self._allowance)
        self._authorizer = authorizer
        self._moved: dict[str, httpx2.URL] = {}
        """Where redirects of an address have led; used until nothing is there any more."""

    @contextlib.asynccontextmanager
    async def stream(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None, **more: Any
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request; the response is open as long as the block lasts. Raises `RequestFailed` and
        `httpx2.HTTPError`."""
        authorizer = self._authorizer
        if authorizer is None:
            async with self._open(method, url, headers=dict(headers), content=content, **more) as response:
                yield response
            return
        for is_last in (False, True):
            sent = await authorizer.authorization()
            with_token = {**headers, **({"authorization": sent} if sent else {})}
            async with self._open(method, url, headers=with_token, content=content, **more) as response:
                if response.status_code not in (401, 403):
                    authorizer.on_accepted(sent)
                    yield response
                    return
                challenge = response.headers.get("www-authenticate")
                # Without a challenge it may be the session that is refused, and no sign-in would help.
                may_be_session = response.status_code == 401 and not challenge and SESSION in headers
                if may_be_session and names_lost_session(await skip_body(response)):
                    raise SessionLost(LOST)
                verdict = await authorizer.on_refused(response.status_code, challenge, sent)
                if verdict == "other":
                    yield response
                    return
                if not response.is_stream_consumed:
                    await skip_body(response)
            if is_last or verdict == "refused":
                raise SendRefused(authorizer.notice or "refused a token that was just renewed")

    @contextlib.asynccontextmanager
    async def _open(self, method: str, url: str, **more: Any) -> AsyncIterator[httpx2.Response]:
        """Send a request to where `url` leads. Raises `RequestFailed` for a redirect that is not followed."""
        target = self._moved.get(url, httpx2.URL(url))
        for _ in range(_REDIRECTS + 1):
            async with self._open_once(method, target, **more) as response:
                if not response.has_redirect_location:
                    if response.status_code in _GONE or response.status_code >= 500:
                        self._moved.pop(url, None)
                    elif target != url:
                        self._moved[url] = target
                    yield response
                    return
                target = follow(method, target, response.status_code, response.headers["location"])
                await skip_body(response)
        raise SendRefused(f"redirects more than {_REDIRECTS} times in a row: set url to the address that answers")

    @contextlib.asynccontextmanager
    async def _open_once(self, method: str, url: httpx2.URL, **more: Any) -> AsyncIterator[httpx2.Response]:
        try:
            async with self._http.stream(method, url, **more) as response:
                yield response
        except ssl.SSLError as error:
            # The HTTP client lets through what TLS says while it reads, such as that our certificate is missing.
            raise httpx2.ReadError(str(error)) from error

    async def aclose(self) -> None:
        await self._http.aclose()


class PacedStream(httpcore2.AsyncNetworkStream):
    """A connection that is read in small pieces, and paused while its server has used up its allowance. Bytes that the
    HTTP client reads by itself, such as interim answers, pass here too."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, allowance: Allowance) -> None:
        self._stream = stream
        self._allowance = allowance
        self._piece = _LEAST_PIECE
        self._read_at = 0.0
        """When the last bytes came, by the clock of our thread."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # httpcore2's
        took_long = time.thread_time() - self._read_at > _LONG_S
        self._piece = max(self._piece // 2, _LEAST_PIECE) if took_long else min(2 * self._piece, _PIECE)
        await self._allowance.wait()
        found = await self._stream.read(min(max_bytes, self._piece), timeout)
        self._read_at = time.thread_time()
        return found

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:  # fmt: skip
        return PacedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._allowance)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _PacedBackend(httpcore2.AsyncNetworkBackend):
    """Opens connections that are paced."""

    def __init__(self, backend: httpcore2.AsyncNetworkBackend, allowance: Allowance) -> None:
        self._backend = backend
        self._allowance = allowance

    async def connect_tcp(self, *place: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        return PacedStream(await self._backend.connect_tcp(*place, **options), self._allowance)

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


def _pace(client: httpx2.AsyncClient, allowance: Allowance) -> None:
    """Have every connection of a client paced, also those over a proxy. The client takes no backend, so it is put into
    its pools."""
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx2.AsyncHTTPTransport):
            pool = transport._pool
            pool._network_backend = _PacedBackend(pool._network_backend, allowance)


def new_client(url: str, headers: Mapping[str, str], cert: Certificate = None) -> httpx2.AsyncClient:
    """Make a client that waits for streams and follows no redirect itself, which could carry credentials elsewhere.
    Raises `LinkError` where it cannot be made."""
    lines = {"user-agent": f"foretool/{__version__}", "accept-encoding": "gzip, deflate", **headers}
    shown = {"verify": _show_certificate(cert)} if cert else {}
    try:
        return make_client(
            httpx2.AsyncClient, url, headers=httpx2.Headers(lines), follow_redirects=False,
            timeout=httpx2.Timeout(connect=_CONNECT_S, read=None, write=_WRITE_S, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=IDLE_S),
            **shown,
        )  # fmt: skip
    except UnusableProxy as error:
        raise LinkError(str(error)) from None


def _show_certificate(cert: tuple[str, str]) -> ssl.SSLContext:
    """Trust who is trusted anyway, and show our own certificate. Raises `LinkError` if that cannot be read."""
    context = httpx2.create_ssl_context()
    try:
        context.load_cert_chain(cert[0], cert[1] or None)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
        raise LinkError(f"client_cert {cert[0]} cannot be used ({reason}); check client_cert and client_key") from None
    return context


async def post_notice(
    client: AuthorizedClient, url: str, headers: Mapping[str, str], message: Message
) -> tuple[int, bytes]:
    """POST a message that gets no reply in the response; return the status and the start of the body. Raises
    `RequestFailed`, `httpx2.HTTPError`."""
    timeout = httpx2.Timeout(_NOTICE_S, connect=_CONNECT_S, pool=None)
    content = jsonrpc.encode(message)
    async with client.stream("POST", url, headers=headers, content=content, timeout=timeout) as response:
        return response.status_code, await skip_body(response)


async def end_session(client: AuthorizedClient, url: str, headers: Mapping[str, str], patience_s: float) -> None:
    """DELETE a session. Raises `httpx2.HTTPError`."""
    async with client.stream("DELETE", url, headers=headers, timeout=patience_s) as response:
        await skip_body(response)


async def skip_body(response: httpx2.Response) -> bytes:
    """Read a short body, so that the connection can be used again. A longer one is cut off. Returns what was read."""
    body = b""
    with contextlib.suppress(TimeoutError, RequestFailed):
        async with asyncio.timeout(_SKIP_S):
            async for piece in read_body(response):
                body += piece
                if len(body) > _SKIPPED:
                    break
    return body


async def _chunks(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the body as it comes. It may come in chunks of one byte, thousands in one read; so the loop has its turn
    after each slice of them."""
    until = time.perf_counter() + SLICE_S
    async for chunk in response.aiter_raw():
        yield chunk
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_S


async def read_body(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the body in pieces of `_PIECE` bytes at most, inflated where it is compressed.

    The HTTP client would inflate whatever comes at once, and a compressed megabyte can be a gigabyte. Raises
    `RequestFailed` for a compression that we did not ask for."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        async for chunk in _chunks(response):
            for start in range(0, len(chunk), _PIECE):
                yield chunk[start : start + _PIECE]
        return
    if encoding not in _INFLATED:
        raise RequestFailed(f"answered with content-encoding {encoding[:40]!r}, which we did not ask for")
    inflater = zlib.decompressobj(_INFLATED[encoding])
    async for chunk in _chunks(response):
        while chunk and not inflater.eof:
            try:
                piece = inflater.decompress(chunk, _PIECE)
            except zlib.error as error:
                raise RequestFailed(f"answered with a broken {encoding} body ({error})") from None
            if piece:
                yield piece
            chunk = inflater.unconsumed_tail
            await asyncio.sleep(0)  # a bomb is many pieces in one chunk, and others want their turn


def origin(url: str) -> str:
    """Return scheme, host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def follow(method: str, here: httpx2.URL, status: int, location: str) -> httpx2.URL:
    """Return where a redirect leads. Raises `RequestFailed` for one that is not followed: it leaves the origin, which
    our credentials are for, or would send a POST again that may have been carried out."""
    try:
        there = here.join(location)
    except httpx2.InvalidURL:
        raise SendRefused(f"answered HTTP {status}, a redirect to an address that is none: check url") from None
    if (there.scheme, there.host, there.port) != (here.scheme, here.host, here.port):
        same_path = ", with the path that it has" if there.path == here.path else ""
        raise SendRefused(
            f"answered HTTP {status}, a redirect to {origin(str(there))}, which is not followed, since credentials must"
            f" not leave their origin: set url to where it leads{same_path}"
        )
    if status == _SEE_OTHER and method == "POST":
        raise RequestFailed(f"answered HTTP {status}, a redirect that takes no POST: set url to where it leads")
    return here.copy_with(raw_path=there.raw_path)


def describe_status(status: int) -> str:
    """Say what a failed HTTP status means, with the way out."""
    if status in _WAYS_OUT:
        return f"answered HTTP {status}: {_WAYS_OUT[status]}"
    if status >= 500:
        return f"answered HTTP {status}: it, or a gateway before it, is failing or restarting"
    return f"answered HTTP {status}"


def describe_error(error: Exception) -> str:
    """Say what went wrong in the HTTP client, in one line."""
    text = str(error).partition("\n")[0]
    if _WANTS_CERTIFICATE.search(text):
        return "it wants a certificate of its clients, and does not accept what it got"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def is_unsent(error: Exception) -> bool:
    """Return whether the request cannot have left: no connection was made."""
    kinds = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol)
    return isinstance(error, kinds)
