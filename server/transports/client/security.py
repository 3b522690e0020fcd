"""Who may talk to the HTTP server: Host and Origin rules against DNS rebinding, and the bearer token."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from foretool.server.protocol.headers import Headers


class Refused(Exception):
    """An HTTP request is refused with this status; the message names the way out."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def without_port(host: str) -> str:
    """Return `example.org` of `example.org:80`, `[::1]` of `[::1]:80`."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


class Guards:
    """Raises `Refused` for requests that must not come in. `token`: everyone has to send it, unless it is "". `hosts`,
    `origins`: accepted besides those of this machine; a host without a port covers all its ports."""

    def __init__(self, token: str, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._token = token.encode()
        # Browsers reach this machine under 0.0.0.0, so as a Host it would prove nothing.
        self._hosts = frozenset(host.lower() for host in hosts) - {"0.0.0.0", "::", "[::]"}  # noqa: S104
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def admit(self, headers: Headers) -> str:
        """Return the principal, which stands for the credential that was sent; "" if none is needed."""
        self._check_host((headers.get("host") or "").lower())
        self._check_origin(headers.get("origin"))
        return self._principal(headers.get("authorization") or "")

    def _check_host(self, host: str) -> None:
        name = without_port(host)
        if not (is_loopback(name) or host in self._hosts or name in self._hosts):
            raise Refused(421, "this Host is not served here; add it to allowed_hosts if it should be")

    def _check_origin(self, origin: str | None) -> None:
        if origin is None or origin.lower() in self._origins:
            return
        try:
            name = urlsplit(origin).hostname or ""
        except ValueError:
            name = ""
        if not is_loopback(name):
            raise Refused(403, "pages of this Origin may not come here; add it to allowed_origins if they should")

    def _principal(self, authorization: str) -> str:
        if not self._token:
            return ""
        scheme, _, token = authorization.partition(" ")
        sent = token.strip().encode("latin-1", "replace")
        if scheme.lower() != "bearer" or not hmac.compare_digest(sent, self._token):
            reason = "send the token of foretool's config as `Authorization: Bearer ...`"
            raise Refused(401, reason, www_authenticate='Bearer realm="foretool"')
        return "bearer:" + hashlib.sha256(sent).hexdigest()[:16]
