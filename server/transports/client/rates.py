"""How many requests each sender may send: what comes too fast is refused, and told when to come back."""

from __future__ import annotations

import math

from foretool.server.transports.client.security import Refused


class Rates:
    """Counts the requests of senders. A pause earns as many requests as fit into a minute, and no more.

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
        """Count a request. Raises `Refused` for one too many, which is not counted."""
        if self.most:
            self.check(sender, now)
            self._full_at[sender] = max(self._full_at.get(sender, 0.0), now) + 60.0 / self.most

    def check(self, sender: str, now: float) -> None:
        """Raise `Refused` if one more request of this sender would be too many; nothing is counted."""
        if not self.most:
            return
        full_at = max(self._full_at.get(sender, 0.0), now) + 60.0 / self.most
        if full_at > now + 60.0 + 1e-6:
            wait = max(1, math.ceil(full_at - now - 60.0))
            raise Refused(429, self._reason.format(most=self.most, wait=wait), retry_after=str(wait))

    def forget(self, now: float) -> None:
        """Drop those who have been quiet long enough."""
        for sender in [sender for sender, full_at in self._full_at.items() if full_at <= now]:
            del self._full_at[sender]
