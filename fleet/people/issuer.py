"""Checks the access tokens of one authorization server, as an OAuth resource server does (RFC 9068, RFC 8725).

A token is believed only if it is signed by a key that the issuer lists, by an algorithm that the config allows and the
key is made for, names our issuer and our audience, and has not expired. What it says is never passed on to an upstream.

Its claims say who it stands for, and which profiles the config opens to that person.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import jwt

from foretool.fleet.people.credentials import Subjects
from foretool.fleet.people.key_sets import KeySet, KeysMissing
from foretool.server.config.errors import printable_line
from foretool.server.config.servers import matches
from foretool.server.config.settings import AccessEntry, GrantEntry
from foretool.server.config.tokens import opens_profile
from foretool.server.transports.client.access import Identity, challenge, is_plain
from foretool.server.transports.client.security import RequestRefused
from foretool.server.trust.text import clean

_NAMES: Final = ("name", "preferred_username", "email", "sub")
"""Claims that may name a person, in the order in which they are tried. `client_id` is the program, not the person."""
_MOST_NAME: Final = 80
"""Characters of a name that is shown."""
BELIEVED_BY_NOBODY: Final = "this is neither a token of the authorization server nor one of foretool's config"
_MOST_VALUES: Final = 1000
"""Values of one claim that are looked at."""


def principal_of(issuer: str, subject: str) -> str:
    """Return what stands for one person of one issuer; nobody else gets the same."""
    # The length keeps two pairs with the same letters apart.
    written = f"{len(issuer)}:{issuer}{subject}".encode("utf-8", "surrogatepass")
    return "oauth:" + hashlib.sha256(written).hexdigest()[:32]


def name_of(claims: Mapping[str, Any]) -> str:
    """Return the name of a person for logs. Two people may have the same, and rights never depend on it."""
    for claim in _NAMES:
        for value in values_of(claims, claim)[:1]:
            if shown := printable_line(clean(value[:1000])).strip()[:_MOST_NAME]:
                return shown
    return ""


def values_of(claims: Mapping[str, Any], claim: str) -> list[str]:
    """Return the values of a claim as words: `scope` is a list with blanks between, `a.b` may be a claim within a
    claim."""
    found: Any = claims.get(claim)
    if found is None and "." in claim:
        found = claims
        for step in claim.split("."):
            found = found.get(step) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return found.split() if claim in ("scope", "scp") else [found]
    listed = found[:_MOST_VALUES] if isinstance(found, list) else [found]
    return [_word(each) for each in listed if isinstance(each, str | bool | int)]


def _word(value: str | bool | int) -> str:
    return value if isinstance(value, str) else str(value).lower()


def scopes_of(claims: Mapping[str, Any]) -> set[str]:
    """Return the scopes of a token; some issuers write `scp`."""
    return {*values_of(claims, "scope"), *values_of(claims, "scp")}


def grant_fits(grant: GrantEntry, claims: Mapping[str, Any]) -> bool:
    """Return whether a token has what a grant asks for."""
    found: Iterable[str] = scopes_of(claims) if grant.claim == "scope" else values_of(claims, grant.claim)
    return any(matches(value, grant.values) for value in found)


def opened_by(grants: Iterable[GrantEntry], profiles: Collection[str]) -> frozenset[str]:
    """Return the profiles that these grants open together."""
    return frozenset(
        profile for grant in grants for profile in profiles if opens_profile(grant.profiles, profile, profiles)
    )


def scopes_for(entry: AccessEntry, profile: str, profiles: Collection[str]) -> tuple[str, ...]:
    """Return the scopes with which a person could open a profile; none if no scope opens it."""
    opening = [
        value
        for grant in entry.grants
        if grant.claim == "scope" and opens_profile(grant.profiles, profile, profiles)
        for value in grant.values
        if is_plain(value)
    ]
    return tuple(dict.fromkeys((*entry.scopes, opening[0]))) if opening else ()


MOST_TOKEN: Final = 16 * 1024
"""Characters of a token."""
MOST_SUBJECT: Final = 1000
_MOST_KEPT: Final = 4096
"""Checked tokens that are kept, so that a request costs no signature each time."""
_TYPES: Final = ("at+jwt", "application/at+jwt", "jwt", "")
"""What `typ` of an access token may be. Many issuers write `JWT`; what is meant for something else has another one."""
_SAID: Final[tuple[tuple[type[Exception], str], ...]] = (
    (jwt.ExpiredSignatureError, "the token has expired"),
    (jwt.ImmatureSignatureError, "the token is not valid yet"),
    (jwt.InvalidAudienceError, "the token is for another audience"),
    (jwt.InvalidIssuerError, "the token is of another issuer"),
    (jwt.MissingRequiredClaimError, "the token lacks a claim: it needs iss, sub, aud and exp"),
    (jwt.InvalidSignatureError, "the signature of the token does not fit"),
)


class ConfiguredIssuer:
    """The authorization server of a config. `profiles`: those that its grants may open."""

    def __init__(
        self, entry: AccessEntry, profiles: Collection[str], keys: KeySet | None = None,
        subjects: Subjects | None = None,
    ) -> None:  # fmt: skip
        """`subjects`: hears every token that is believed, where a server needs it."""
        self._subjects = subjects or Subjects()
        self.entry = entry
        self.keys = keys or KeySet(entry.issuer, entry.jwks_url)
        self._profiles = frozenset(profiles)
        self._kept: OrderedDict[bytes, Identity] = OrderedDict()
        self._version = 0
        """Of the keys with which the kept tokens were checked."""

    async def identify(self, token: str) -> Identity:
        """Return who a token stands for. Raises `RequestRefused`: 401 for one that is not believed, 403 for one without
        the scopes that every token needs, 503 while there are no keys."""
        found = await self._believe(token)
        lacking = [scope for scope in self.entry.scopes if scope not in scopes_of(found.claims)]
        if lacking:
            reason = f"the token lacks the scope {' '.join(lacking)}"
            header = challenge(self.entry, "insufficient_scope", reason, self.entry.scopes)
            raise RequestRefused(403, reason, www_authenticate=header)
        self._subjects.note(found.principal, token, found.expires_at)
        return found

    async def _believe(self, token: str) -> Identity:
        digest = hashlib.sha256(token.encode("latin-1", "replace")).digest()
        if self._version != self.keys.version:
            self._kept.clear()
            self._version = self.keys.version
        found = self._kept.get(digest)
        if found is None:
            found = self._read(await self._check(token))
            self._kept[digest] = found
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        elif found.expires_at + self.entry.leeway_s < time.time():
            raise self._refused("the token has expired")
        return found

    def again(self, identity: Identity) -> Identity | None:
        said = identity.claims
        audience = said.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if said.get("iss") != self.entry.issuer or not set(self.entry.audience) & set(audiences):
            return None
        if self._ends_at(said) + self.entry.leeway_s < time.time():
            return None
        if not set(self.entry.scopes) <= scopes_of(said):
            return None
        return self._read(said)

    def lacking(self, profile: str) -> RequestRefused | None:
        scopes = scopes_for(self.entry, profile, self._profiles) if profile in self._profiles else ()
        if not scopes:
            return None
        reason = f"this needs the scope {' '.join(scopes)}"
        header = challenge(self.entry, "insufficient_scope", reason, scopes)
        return RequestRefused(403, reason, www_authenticate=header)

    def warm(self) -> None:
        """Begin to read the keys before a token needs them."""
        self.keys.warm()

    async def close(self) -> None:
        await self.keys.close()

    def _ends_at(self, said: Mapping[str, Any]) -> float:
        return float(said["exp"])

    def _read(self, said: Mapping[str, Any]) -> Identity:
        grants = [grant for grant in self.entry.grants if grant_fits(grant, said)]
        return Identity(
            principal=principal_of(said["iss"], said["sub"]),
            profiles=opened_by(grants, self._profiles),
            may_decide=any(grant.may_decide for grant in grants),
            name=name_of(said),
            expires_at=self._ends_at(said),
            claims=said,
        )

    async def _check(self, token: str) -> dict[str, Any]:
        """Return the claims of a token that is believed. Raises `RequestRefused`."""
        if len(token) > MOST_TOKEN or token.count(".") != 2:
            raise self._refused(BELIEVED_BY_NOBODY)
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise self._refused(BELIEVED_BY_NOBODY) from None
        algorithm, name, kind = header.get("alg"), header.get("kid"), header.get("typ", "")
        if algorithm not in self.entry.algorithms:
            raise self._refused(f"the token is not signed by one of: {', '.join(self.entry.algorithms)}")
        if not (isinstance(kind, str) and kind.lower() in _TYPES) or "crit" in header:
            raise self._refused("this is a token for another purpose")
        if name is not None and not isinstance(name, str):
            raise self._refused("the token names no key")
        try:
            keys = await self.keys.find(name, algorithm)
        except KeysMissing as error:
            raise RequestRefused(503, f"tokens cannot be checked at the moment: {error}", retry_after="10") from None
        said = "the token is not signed with a key of its issuer"
        for key in keys:
            try:
                return self._decode(token, key.public, algorithm)
            except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
                said = next((text for kind, text in _SAID if isinstance(error, kind)), "the token is not well-formed")
        raise self._refused(said)

    def _decode(self, token: str, key: Any, algorithm: str) -> dict[str, Any]:
        entry = self.entry
        said: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=entry.audience,
            issuer=entry.issuer,
            leeway=entry.leeway_s,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        subject = said["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= MOST_SUBJECT:
            raise jwt.InvalidTokenError("sub")
        if "cnf" in said:
            # Whoever shows such a token has to prove that a key is theirs, which a bearer does not.
            raise jwt.InvalidTokenError("cnf")
        return said

    def _refused(self, reason: str) -> RequestRefused:
        header = challenge(self.entry, "invalid_token", reason, self.entry.scopes)
        return RequestRefused(401, reason, www_authenticate=header)
