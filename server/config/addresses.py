"""Where `serve --http` listens: a host and a port, or a Unix socket; and which addresses an authorization server may
have."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from foretool.server.config import jsonc
from foretool.server.config.errors import Invalid

_UNIX = "unix:"
EXPECTED = 'expected host:port, like "127.0.0.1:8399" or "[::1]:8399", or "unix:/path/of/a.sock"'


class Address(NamedTuple):
    """One address; `path` is that of a Unix socket, and host and port are empty then."""

    host: str = "127.0.0.1"
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(written: str) -> Address:
    """Read `127.0.0.1:8399`, `[::1]:8399`, `localhost:0` or `unix:/path`. Raises `ValueError`."""
    if written.startswith(_UNIX):
        path = os.path.expanduser(written.removeprefix(_UNIX))  # noqa: PTH111 -- keeps what Path would tidy up
        if not path.startswith("/") or path.endswith("/") or not path.isprintable():
            raise ValueError('expected a full path behind "unix:", like "unix:/run/user/1000/foretool/http.sock"')
        return Address("", 0, path)
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})", written)
    if match is None or int(match[3]) > 65_535:
        raise ValueError(EXPECTED)
    return Address(match[1] or match[2], int(match[3]))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    import ipaddress  # only HTTP needs it

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def can_be_split(url: str) -> bool:
    """Return whether host and port of a URL can be read, which a port of `99999` cannot."""
    from urllib.parse import urlsplit  # few configs name one

    try:
        parts = urlsplit(url)
        return parts.port is None or bool(parts.hostname)
    except ValueError:
        return False


def check_address(address: str, path: jsonc.Path, danger: str) -> None:
    """Raise `Invalid` for what is no address of an authorization server. `danger`: of one without encryption."""
    from urllib.parse import urlsplit  # few configs name one

    try:
        parts = urlsplit(address)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    if parts.scheme not in ("https", "http") or not host or parts.username or parts.query or parts.fragment:
        raise Invalid(path, 'expected an address like "https://login.example.com", without "?", "#" or a password')
    if not address.isprintable() or " " in address or '"' in address or "\\" in address:
        raise Invalid(path, "expected an address without blanks and quotation marks")
    if parts.scheme == "http" and not is_loopback(host):
        raise Invalid(path, f"expected https://: over http:// {danger}")
