"""How many requests each principal may send: what comes too fast is refused, and told when to come back."""

from __future__ import annotations

import math

from foretool.server.transports.client.security import Refused


class Rates:
    """Counts the requests of principals. A pause earns as many requests as fit into a minute, and no more.

    `most`: requests of one principal in a minute, 0 for any number.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._full_at: dict[str, float] = {}
        """By principal: when it may send a whole minute's requests at once again, in monotonic seconds."""

    def take(self, principal: str, now: float) -> None:
        """Count a request. Raises `Refused` for one too many, which is not counted."""
        if not self.most:
            return
        full_at = max(self._full_at.get(principal, 0.0), now) + 60.0 / self.most
        if full_at > now + 60.0 + 1e-6:
            wait = max(1, math.ceil(full_at - now - 60.0))
            reason = (
                f"more than {self.most} requests in a minute (requests_per_minute); "
                f"come back in {wait} s, or send fewer at once"
            )
            raise Refused(429, reason, retry_after=str(wait))
        self._full_at[principal] = full_at

    def forget(self, now: float) -> None:
        """Drop those who have been quiet long enough."""
        for principal in [each for each, full_at in self._full_at.items() if full_at <= now]:
            del self._full_at[principal]
