"""Who may open what over HTTP: bearer tokens, and the profiles that each of them opens."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

from foretool.server.config.settings import TokenEntry
from foretool.server.config.tokens import opens_profile
from foretool.server.transports.client.security import Refused

WITHOUT_TOKEN = ""
"""The principal of everybody where no token is needed."""


class Access:
    """The tokens in force. With `is_open`, no token is needed and every profile is open."""

    def __init__(self, tokens: Iterable[TokenEntry], profiles: Collection[str], *, is_open: bool = False) -> None:
        # Keyed by digest: the time of a look-up tells nothing about a token, because nobody can steer a digest.
        self._by_digest: dict[bytes, str] = {}
        self._open: set[tuple[str, str]] = {(WITHOUT_TOKEN, profile) for profile in profiles} if is_open else set()
        self._is_open = is_open
        self._deciding: set[str] = set()
        self.profiles = frozenset(profiles)
        for entry in tokens:
            digest = bytes.fromhex(entry.sha256)
            self._by_digest[digest] = principal = "bearer:" + entry.sha256[:32]
            if entry.may_decide:
                self._deciding.add(principal)
            opened = (profile for profile in profiles if opens_profile(entry.profiles, profile, profiles))
            self._open.update((principal, profile) for profile in opened)

    @property
    def shares(self) -> int:
        """How many principals share the server."""
        return max(1, len(self._by_digest))

    def identify(self, authorization: str) -> str:
        """Return the principal, which stands for the token that was sent. Raises `Refused`."""
        if self._is_open:
            return WITHOUT_TOKEN
        scheme, _, token = authorization.partition(" ")
        digest = hashlib.sha256(token.strip().encode("latin-1", "replace")).digest()
        principal = self._by_digest.get(digest)
        if principal is None or scheme.lower() != "bearer":
            reason = "send a token of foretool's config as `Authorization: Bearer ...`"
            raise Refused(401, reason, www_authenticate='Bearer realm="foretool"')
        return principal

    def opens(self, principal: str, profile: str) -> bool:
        """Tell whether the profile exists and this principal may use it."""
        return (principal, profile) in self._open

    @property
    def is_open(self) -> bool:
        """Whether no token is needed."""
        return self._is_open

    def opened_by(self, principal: str) -> frozenset[str]:
        """Return the profiles that this principal may use; none for a token that is no longer valid."""
        return frozenset(profile for profile in self.profiles if (principal, profile) in self._open)

    def opens_all(self, principal: str) -> bool:
        """Tell whether this principal may use every profile."""
        return self.opened_by(principal) == self.profiles

    def may_decide(self, principal: str) -> bool:
        """Tell whether this principal may change something on the page."""
        return principal in self._deciding
