"""Makes the HTTP clients of every part, and decides which of them use the proxy that the environment names.

A proxy would look for an address of this machine on its own machine, so none is used for those.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from foretool.server.config.addresses import is_loopback

if TYPE_CHECKING:
    import ssl

    import httpx2

_Client = TypeVar("_Client", "httpx2.Client", "httpx2.AsyncClient")


class UnusableProxy(ValueError):
    """The environment names a proxy in a form that is not understood."""


def make_client(kind: Callable[..., _Client], url: str, **options: Any) -> _Client:
    """Make a client for the requests to one address. Raises `UnusableProxy`, and `ValueError` for a broken address."""
    import httpx2  # 0.1 s, which only those pay who reach something over HTTP

    is_here = is_loopback(urlsplit(url).hostname or "")
    options = {"verify": _trusted(url, is_here=is_here), **options}
    try:
        return kind(trust_env=not is_here, **options)
    except (ValueError, httpx2.InvalidURL):  # the text has the whole address, perhaps with a password
        expected = "expected http://host:port, https://host:port or socks5://host:port"
        raise UnusableProxy(f"the proxy of HTTP_PROXY, HTTPS_PROXY or ALL_PROXY cannot be used: {expected}") from None


def _trusted(url: str, *, is_here: bool) -> ssl.SSLContext | bool:
    """Return which servers are trusted. Loading the certificates takes 0.08 s; only TLS to the server or to a proxy
    needs them."""
    import httpx2

    if url.lower().startswith("https:"):
        return httpx2.create_ssl_context()  # with SSL_CERT_FILE, also for this machine
    return not is_here and any(name.lower().endswith("_proxy") for name in os.environ)
