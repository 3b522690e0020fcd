"""The one way to an authorization server: bounded in time and size, to allowed addresses alone, without redirects.

A server that wants a sign-in names the addresses of its metadata and of its authorization server. It may be hostile,
and have us ask the router, a cloud's metadata service or a file. So every address has to be `https`, and may not
be one of this machine or of the local network unless the server itself is there. The certificate that `https` checks
also stops a name that is resolved differently the second time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from foretool.server.config.addresses import is_loopback

if TYPE_CHECKING:
    import httpx2

PATIENCE_S: Final = 20.0
"""Longest time for one answer, from the look-up of the name to the last byte."""
_MOST_BYTES: Final = 256 * 1024
"""The largest document of an authorization server."""


class FetchError(Exception):
    """An address is not asked, or does not answer; the message names scheme and host alone."""


async def fetch(
    method: str, url: str, server: str, *, headers: Mapping[str, str] | None = None, content: bytes = b"",
    is_server: bool = False, cert: tuple[str, str] | None = None,
) -> httpx2.Response:  # fmt: skip
    """Send one request and return the whole answer; a redirect is an answer. `server`: the address of the server that
    wants the sign-in. `is_server`: this request goes to that server, which the user has named, and of its answer only
    the header lines count. Raises `FetchError`."""
    import httpx2

    from foretool.server.transports.upstream import http_client
    from foretool.server.transports.upstream.base import LinkError
    from foretool.server.transports.upstream.http_client import RequestFailed

    at = http_client.origin(url)
    try:
        async with asyncio.timeout(PATIENCE_S):
            if not is_server:
                await refuse_private_address(url, server)
            client = http_client.new_client(url, {}, cert)
            async with client, client.stream(method, url, headers=dict(headers or {}), content=content) as response:
                body = bytearray()
                if is_server:
                    return httpx2.Response(response.status_code, headers=_kept(response), request=response.request)
                async for piece in http_client.read_body(response):
                    body += piece
                    if len(body) > _MOST_BYTES:
                        raise FetchError(f"{at} answered with more than {_MOST_BYTES // 1024} KiB")
                return httpx2.Response(
                    response.status_code, headers=_kept(response), content=bytes(body), request=response.request
                )
    except TimeoutError:
        raise FetchError(f"{at} did not answer within {PATIENCE_S:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, LinkError, RequestFailed, UnicodeError, ValueError) as error:
        raise FetchError(f"{at} cannot be asked ({http_client.describe_error(error)[:200]})") from None


def _kept(response: httpx2.Response) -> dict[str, str]:
    return {name: each for name, each in response.headers.items() if name in ("content-type", "www-authenticate")}


async def refuse_private_address(url: str, server: str) -> None:
    """Raise `FetchError` for an address that a server may not have us ask."""
    parts, own = urlsplit(url), urlsplit(server)
    host, own_host = parts.hostname or "", own.hostname or ""
    shown = f"{parts.scheme}://{host}"[:100]
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.password:
        raise FetchError(f"{shown!r} is no address of an authorization server")
    if parts.scheme == "http" and not (is_loopback(host) and is_loopback(own_host)):
        raise FetchError(f"{shown} is not encrypted; a sign-in needs https://")
    if host == own_host:
        return
    addresses, own_addresses = await _resolve(host), None
    for address in addresses:
        if is_public(address):
            continue
        # A server within the local network has its authorization server there, and is trusted with no other place.
        own_addresses = await _resolve(own_host) if own_addresses is None else own_addresses
        if any(map(is_public, own_addresses)) or is_loopback(address) != any(map(is_loopback, own_addresses)):
            raise FetchError(f"{shown} is an address of this machine or its network, where {own_host[:100]} is not")


def is_public(address: str) -> bool:
    """Return whether an IP address belongs to the internet, and not to this machine or a local network."""
    found = ipaddress.ip_address(address.partition("%")[0])
    inner = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None)
    return (inner or found).is_global and not found.is_multicast


async def _resolve(host: str) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise FetchError(f"there is no host {host[:100]!r}") from None
    return [str(each[4][0]) for each in found]
