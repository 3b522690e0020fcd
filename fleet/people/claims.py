"""What the claims of a token say: who it stands for, and which profiles the config opens to that person."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from foretool.server.config.errors import one_line
from foretool.server.config.servers import matches
from foretool.server.config.settings import AccessEntry, GrantEntry
from foretool.server.config.tokens import opens_profile
from foretool.server.transports.client.well_known import is_plain
from foretool.server.trust.text import clean

NAMES: Final = ("preferred_username", "email", "sub")
"""Claims that may name a person, in the order in which they are tried. `client_id` is the program, not the person."""
MOST_NAME: Final = 80
"""Characters of a name that is shown."""
MOST_VALUES: Final = 1000
"""Values of one claim that are looked at."""


def principal_of(issuer: str, subject: str) -> str:
    """Return what stands for one person of one issuer; nobody else gets the same."""
    # The length keeps two pairs with the same letters apart.
    written = f"{len(issuer)}:{issuer}{subject}".encode("utf-8", "surrogatepass")
    return "oauth:" + hashlib.sha256(written).hexdigest()[:32]


def name_of(claims: Mapping[str, Any]) -> str:
    """Return the name of a person for logs. Two people may have the same, and rights never depend on it."""
    for claim in NAMES:
        for value in values_of(claims, claim)[:1]:
            if shown := one_line(clean(value[:1000])).strip()[:MOST_NAME]:
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
    listed = found[:MOST_VALUES] if isinstance(found, list) else [found]
    return [_word(each) for each in listed if isinstance(each, str | bool | int)]


def _word(value: str | bool | int) -> str:
    return value if isinstance(value, str) else str(value).lower()


def scopes_of(claims: Mapping[str, Any]) -> set[str]:
    """Return the scopes of a token; some issuers write `scp`."""
    return {*values_of(claims, "scope"), *values_of(claims, "scp")}


def fits(grant: GrantEntry, claims: Mapping[str, Any]) -> bool:
    """Tell whether a token has what a grant asks for."""
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
