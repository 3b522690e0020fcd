"""Who may open what over HTTP: bearer tokens of the config, people of an authorization server, and their profiles.

Clients learn here which authorization server to ask: from the metadata of a protected resource (RFC 9728), and from
challenges. Both come from the config alone, never from the `Host` of a request: an attacker who chooses that would
send clients to an authorization server of their own.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from foretool.server.config.settings import AccessEntry, TokenEntry
from foretool.server.config.tokens import opens_profile
from foretool.server.transports.client.security import RequestRefused

ROOT: Final = "/.well-known/oauth-protected-resource"


def metadata_url(entry: AccessEntry) -> str:
    """Return where the metadata of the resource is: between its host and its path."""
    parts = urlsplit(entry.resource)
    return f"{parts.scheme}://{parts.netloc}{ROOT}{parts.path.rstrip('/')}"


def metadata(entry: AccessEntry) -> bytes:
    """Return the metadata of the resource. All profiles are one resource, so a token fits each that its claims open."""
    document: dict[str, str | list[str]] = {
        "resource": entry.resource,
        "authorization_servers": [entry.issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": "foretool",
    }
    if scopes := all_scopes(entry):
        document["scopes_supported"] = list(scopes)
    return msgspec.json.encode(document)


def all_scopes(entry: AccessEntry) -> tuple[str, ...]:
    """Return every scope that the config names without wildcards."""
    named = [value for grant in entry.grants if grant.claim == "scope" for value in grant.values if is_plain(value)]
    return tuple(dict.fromkeys((*entry.scopes, *named)))


def is_plain(pattern: str) -> bool:
    """Return whether a pattern has no wildcard, so that it means one name."""
    return not any(letter in pattern for letter in "*?[")


def challenge(entry: AccessEntry, error: str = "", description: str = "", scopes: Iterable[str] = ()) -> str:
    """Return the `WWW-Authenticate` of a refusal. It repeats nothing of the request."""
    said = {
        "error": error,
        "error_description": description,
        "scope": " ".join(scopes),
        "resource_metadata": metadata_url(entry),
    }
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in said.items() if value)


_WITHOUT_TOKEN = ""
"""The principal of everybody where no token is needed."""
_PEOPLE: Final = 10
"""For how many people of an authorization server room is kept: each may take this part of sessions and connections."""


class Identity(Struct, frozen=True, kw_only=True):
    """Who has sent a request, and what they may use."""

    principal: str
    """Stands for one token of the config, or for one person of one issuer. Sessions and everything else that belongs to
    somebody hangs on it."""
    profiles: frozenset[str]
    may_decide: bool = False
    name: str = ""
    """Who it is, in words for people; others may have the same."""
    expires_at: float = math.inf
    """When the token ends, in seconds of the system clock."""
    claims: Mapping[str, Any] = {}
    """What the authorization server says of the person; never shown or passed on as a whole."""

    def __repr__(self) -> str:
        return f"Identity({self.principal!r}, {sorted(self.profiles)!r})"


class Issuer(Protocol):
    """Knows the tokens of an authorization server."""

    @property
    def entry(self) -> AccessEntry: ...

    async def identify(self, token: str) -> Identity:
        """Return who a token stands for. Raises `RequestRefused`."""
        ...

    def again(self, identity: Identity) -> Identity | None:
        """Return what this person may do by the config in force; None if their token is no longer valid."""
        ...

    def lacking(self, profile: str) -> RequestRefused | None:
        """Return the refusal that names the scopes which would open a profile; None if no scope does."""
        ...


class Access:
    """The tokens in force. With `is_open`, no token is needed and every profile is open."""

    def __init__(
        self,
        tokens: Iterable[TokenEntry],
        profiles: Collection[str],
        *,
        is_open: bool = False,
        issuer: Issuer | None = None,
    ) -> None:
        # Keyed by digest: the time of a look-up tells nothing about a token, because nobody can steer a digest.
        self._by_digest: dict[bytes, Identity] = {}
        self._by_principal: dict[str, Identity] = {}
        self.profiles = frozenset(profiles)
        self._anybody = Identity(principal=_WITHOUT_TOKEN, profiles=self.profiles) if is_open else None
        self.issuer = issuer
        for entry in tokens:
            found = Identity(
                principal="bearer:" + entry.sha256[:32],
                profiles=frozenset(name for name in profiles if opens_profile(entry.profiles, name, profiles)),
                may_decide=entry.may_decide,
                name=entry.name,
            )
            self._by_digest[bytes.fromhex(entry.sha256)] = self._by_principal[found.principal] = found

    @property
    def shares(self) -> int:
        """Into how many parts limits are divided, one for each principal that may connect."""
        return max(1, len(self._by_digest)) + (_PEOPLE if self.issuer is not None else 0)

    async def identify(self, authorization: str) -> Identity:
        """Return who has sent the value of an `Authorization`. Raises `RequestRefused`."""
        if self._anybody is not None:
            return self._anybody
        scheme, _, token = authorization.partition(" ")
        token = token.strip() if scheme.lower() == "bearer" else ""
        digest = hashlib.sha256(token.encode("latin-1", "replace")).digest()
        if token and (found := self._by_digest.get(digest)) is not None:
            return found
        if self.issuer is None:
            reason = "send a token of foretool's config as `Authorization: Bearer ...`"
            raise RequestRefused(401, reason, www_authenticate='Bearer realm="foretool"')
        if token:
            return await self.issuer.identify(token)
        entry = self.issuer.entry
        reason = "sign in at the authorization server, and send its token as `Authorization: Bearer ...`"
        raise RequestRefused(401, reason, www_authenticate=challenge(entry, scopes=entry.scopes))

    def again(self, identity: Identity) -> Identity | None:
        """Return what this person may do by the tokens in force; None if theirs is no longer valid."""
        if self._anybody is not None or identity.principal == _WITHOUT_TOKEN:
            return self._anybody if identity.principal == _WITHOUT_TOKEN else None
        if identity.claims:
            return self.issuer.again(identity) if self.issuer is not None else None
        return self._by_principal.get(identity.principal)

    def opens(self, identity: Identity, profile: str) -> bool:
        """Return whether the profile exists and this person may use it by the rules in force."""
        now = self.again(identity)
        return now is not None and profile in now.profiles

    def refusal(self, identity: Identity, profile: str) -> RequestRefused | None:
        """Return the refusal that says how to get into a profile which this identity does not open. None if the answer
        must not tell that the profile exists."""
        if not identity.claims or self.issuer is None:
            return None
        if (lacking := self.issuer.lacking(profile)) is not None:
            return lacking
        if not identity.profiles:
            return RequestRefused(403, 'no entry of "grants" fits this token; ask who runs this proxy to let you in')
        return None

    @property
    def is_open(self) -> bool:
        """Whether no token is needed."""
        return self._anybody is not None
