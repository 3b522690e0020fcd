"""The authorization server of HTTP clients as the config names it, read and checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from foretool.server.config import jsonc
from foretool.server.config.addresses import check_address
from foretool.server.config.errors import Invalid
from foretool.server.config.settings import AccessEntry, GrantEntry, Settings
from foretool.server.config.tokens import DEFAULT, opens_profile
from foretool.server.config.variables import Expansion

_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""One scope as RFC 6749, section 3.3 writes it."""


def read_access(settings: Settings, here: jsonc.Path, environ: Mapping[str, str]) -> AccessEntry | None:
    """Return `access` with variables expanded and the audience filled in. Raises `Invalid`."""
    entry = settings.access
    if entry is None:
        return None
    path: jsonc.Path = (*here, "access")
    addresses = {
        key: Expansion(environ, (*path, key)).text(getattr(entry, key))
        for key in ("issuer", "resource", "jwks_url", "introspection_endpoint")
    }
    for key, address in addresses.items():
        if address or key in ("issuer", "resource"):
            check_address(address, (*path, key), "anybody on the way could forge keys or take tokens")
    audience = tuple(Expansion(environ, (*path, "audience")).text(each) for each in entry.audience)
    if not all(audience):
        raise Invalid((*path, "audience"), "expected names that are not empty; leave it out to expect `resource`")
    for scope in entry.scopes:
        if not _SCOPE.fullmatch(scope):
            raise Invalid((*path, "scopes"), f"expected scopes without blanks, found {scope[:40]!r}; write one an item")
    _check_grants(entry, path)
    client = {key: Expansion(environ, (*path, key)).text(getattr(entry, key)) for key in ("client_id", "client_secret")}
    if addresses["introspection_endpoint"]:
        if addresses["jwks_url"]:
            raise Invalid(
                (*path, "jwks_url"), "found introspection_endpoint beside it, which asks for no keys; keep one"
            )
        if not all(client.values()):
            problem = "expected client_id and client_secret beside it, as which foretool asks; add what is missing"
            raise Invalid((*path, "introspection_endpoint"), problem)
    return msgspec.structs.replace(entry, **addresses, **client, audience=audience or (addresses["resource"],))


def _check_grants(entry: AccessEntry, path: jsonc.Path) -> None:
    if not entry.grants:
        example = '[{"claim": "groups", "values": ["developers"], "profiles": ["dev"]}]'
        raise Invalid((*path, "grants"), f"expected who may use what, like {example}; nothing is open without it")
    for at, grant in enumerate(entry.grants):
        if missing := next((key for key in ("claim", "values", "profiles") if not getattr(grant, key)), ""):
            example = {"claim": '"groups"', "values": '["developers"]', "profiles": f'["{DEFAULT}"]'}[missing]
            raise Invalid((*path, "grants", at), f'expected "{missing}", like {example}')


def unmatched_grants(settings: Settings) -> list[tuple[int, str]]:
    """Return the patterns of grants that open nothing, each with the place of its grant."""
    profiles = ("", *settings.profiles)
    grants: Iterable[GrantEntry] = settings.access.grants if settings.access is not None else ()
    return [
        (at, pattern)
        for at, grant in enumerate(grants)
        for pattern in grant.profiles
        if not any(opens_profile((pattern,), profile, profiles) for profile in profiles)
    ]
