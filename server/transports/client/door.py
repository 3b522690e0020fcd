"""The one door of the HTTP server: `/mcp`, `/metrics` and `/ui` let requests in by the same rules.

Who shows wrong tokens all the time is refused unread, by address. A token that was already right once at this address
still passes, so nobody locks out the others behind the same proxy.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from typing import Final

from foretool.server.transports.client.access import Identity
from foretool.server.transports.client.http_request import HttpRequest
from foretool.server.transports.client.http_rules import HttpRules
from foretool.server.transports.client.security import Rates, RequestRefused

WRONG_TOKENS: Final = 30
"""Different wrong tokens of one address in a minute, before further unknown tokens are refused unread. A client that
sends its old token again and again counts once."""
_LOG_S: Final = 60.0
"""How often an address is named in the log whose tokens are refused."""
_REMEMBERED: Final = 4096
"""Most pairs of an address and a token that are remembered as right, and as wrong."""


log = logging.getLogger("foretool.http")


class Pairs:
    """Remembers which principals came from which addresses, up to a number; the oldest are forgotten."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[tuple[str, str], None] = OrderedDict()

    def add(self, address: str, name: str) -> bool:
        """Add a pair. Returns whether it is new."""
        is_new = (address, name) not in self._pairs
        self._pairs[address, name] = None
        self._pairs.move_to_end((address, name))
        if len(self._pairs) > _REMEMBERED:
            self._pairs.popitem(last=False)
        return is_new

    def __contains__(self, pair: tuple[str, str]) -> bool:
        return pair in self._pairs


class RefusalLog:
    """Logs where refused tokens come from, never the tokens: the first of an address at once, later ones by minute."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, int]] = {}
        """By address: when it was last named, and how many were refused since."""

    def note(self, address: str, why: str, now: float) -> None:
        """Count a refusal. `now`: monotonic seconds."""
        if (known := self._counts.get(address)) is not None:
            self._counts[address] = known[0], known[1] + 1
        elif len(self._counts) < _REMEMBERED:
            self._counts[address] = now, 0
            log.warning("refused the token of a request from %s (%s)", address or "the socket", why)

    def sum_up(self, now: float) -> None:
        """Say how many more were refused of each address that was named a minute ago."""
        for address, (since, count) in [each for each in self._counts.items() if now - each[1][0] >= _LOG_S]:
            del self._counts[address]
            if count:
                self._counts[address] = now, 0
                log.warning(
                    "refused the tokens of %d more requests from %s in %.0f s",
                    count,
                    address or "the socket",
                    now - since,
                )


class Door:
    """Identifies who sends each request and counts it, by the rules in force.

    identity = await door.identify(request, "Bearer ...")  # raises RequestRefused: 401, 403 or 429
    """

    def __init__(self, rules: HttpRules) -> None:
        self.rules = rules
        self._rates = Rates(rules.limits.requests_per_minute)
        self._guesses = Rates(WRONG_TOKENS, "too many wrong tokens came from this address; come back in {wait} s")
        self._refusals = RefusalLog()
        self._right = Pairs()
        self._wrong = Pairs()

    def follow(self, rules: HttpRules) -> None:
        """Put other rules in force."""
        self.rules = rules
        self._rates.most = rules.limits.requests_per_minute

    async def identify(self, request: HttpRequest, authorization: str) -> Identity:
        """Return who sends a request with this `Authorization`, and count the request. Raises `RequestRefused`."""
        try:
            return await self._identify(request, authorization)
        except RequestRefused as error:
            if authorization and error.status in (401, 403):
                self._refusals.note(request.connection.source, f"{error.status}: {error}", time.monotonic())
            raise

    async def _identify(self, request: HttpRequest, authorization: str) -> Identity:
        address, now = request.connection.source, time.monotonic()
        try:
            identity = await self.rules.access.identify(authorization)
        except RequestRefused as error:
            if error.status == 401 and authorization and self._wrong.add(address, _digest(authorization)):
                self._guesses.take(address, now)
            raise
        if not self.rules.access.is_open and (address, identity.principal) not in self._right:
            # Asked only now, so that a flood of guesses learns as little from a right token as from a wrong one.
            self._guesses.check(address, now)
            self._right.add(address, identity.principal)
        self.admit(request, identity)
        return identity

    def admit(self, request: HttpRequest, identity: Identity) -> None:
        """Count a request of somebody who is known already. Raises `RequestRefused` for one too many in a minute."""
        request.connection.recognise(identity.principal)
        self._rates.take(identity.principal, time.monotonic())

    def forget(self, now: float) -> None:
        """Drop the counts of those who have been quiet long enough. `now`: monotonic seconds."""
        self._rates.forget(now)
        self._guesses.forget(now)
        self._refusals.sum_up(now)


def _digest(authorization: str) -> str:
    return hashlib.sha256(authorization.encode("latin-1", "replace")).hexdigest()
