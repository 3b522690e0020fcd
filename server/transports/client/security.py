"""Refuses requests to the HTTP server: by Host and Origin rules against DNS rebinding, and what comes too fast.

Each sender may send so many requests; one that sends more is told when to come back (`Rates`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from foretool.server.config.addresses import is_loopback
from foretool.server.protocol.headers import Headers

_ONCE = frozenset(
    {"authorization", "content-encoding", "content-length", "content-type", "host", "last-event-id", "mcp-session-id"}
    | {"origin", "transfer-encoding"}
)
"""Headers of which a second one could mean another thing to a proxy before us."""


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?P<host>[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?", re.IGNORECASE)
"""An Origin as browsers write it: scheme, host and port, and nothing that two programs could read in two ways."""


class RequestRefused(Exception):
    """An HTTP request is refused with this status; the message names the way out."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def without_port(host: str) -> str:
    """Return `example.org` of `example.org:80`, `[::1]` of `[::1]:80`."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


class Guards:
    """Raises `RequestRefused` for requests that must not come in. `hosts`, `origins`: accepted besides those of this
    machine; a host without a port covers all its ports."""

    def __init__(self, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        # Browsers reach this machine under 0.0.0.0, so as a Host it would prove nothing.
        self._hosts = frozenset(host.lower() for host in hosts) - {"", "0.0.0.0", "::", "[::]"}  # noqa: S104
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def check(self, headers: Headers) -> None:
        """Raise `RequestRefused` for a request under the name of another host, or from a page of another one."""
        if twice := headers.repeated & _ONCE:
            raise RequestRefused(400, f"{min(twice)} came more than once")
        self._check_host((headers.get("host") or "").lower())
        self._check_origin(headers.get("origin"))

    def _check_host(self, host: str) -> None:
        name = without_port(host)
        if not (is_loopback(name) or host in self._hosts or name in self._hosts):
            raise RequestRefused(421, "this Host is not served here; add it to allowed_hosts if it should be")

    def _check_origin(self, origin: str | None) -> None:
        if origin is None or origin.lower() in self._origins:
            return
        written = _ORIGIN.fullmatch(origin)
        if written is None or not is_loopback(written["host"]):
            raise RequestRefused(
                403, "pages of this Origin may not come here; add it to allowed_origins if they should"
            )


class Rates:
    """Counts the requests of each sender. A pause earns as many requests as fit into a minute, and no more.

    `most`: requests of one sender in a minute, 0 for any number. `reason`: what a refusal says, with the number in
    place of `{most}` and the seconds to wait in place of `{wait}`.
    """

    def __init__(
        self,
        most: int,
        reason: str = "more than {most} requests in a minute (requests_per_minute); "
        "come back in {wait} s, or send fewer at once",
    ) -> None:
        self.most = most
        self._reason = reason
        self._full_at: dict[str, float] = {}
        """By sender: when it may send a whole minute's requests at once again, in monotonic seconds."""

    def take(self, sender: str, now: float) -> None:
        """Count a request. Raises `RequestRefused` for one too many, which is not counted."""
        if self.most:
            self.check(sender, now)
            self._full_at[sender] = max(self._full_at.get(sender, 0.0), now) + 60.0 / self.most

    def check(self, sender: str, now: float) -> None:
        """Raise `RequestRefused` if one more request of this sender would be too many; nothing is counted."""
        if not self.most:
            return
        full_at = max(self._full_at.get(sender, 0.0), now) + 60.0 / self.most
        if full_at > now + 60.0 + 1e-6:
            wait = max(1, math.ceil(full_at - now - 60.0))
            raise RequestRefused(429, self._reason.format(most=self.most, wait=wait), retry_after=str(wait))

    def forget(self, now: float) -> None:
        """Drop those who have been quiet long enough."""
        for sender in [sender for sender, full_at in self._full_at.items() if full_at <= now]:
            del self._full_at[sender]
