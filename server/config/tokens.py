"""The bearer tokens of HTTP clients as the config names them: read, checked, and refused where they can be guessed.

The authorization server whose tokens count instead is read and checked here too (`read_access`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from foretool.server.config import jsonc
from foretool.server.config.addresses import check_address
from foretool.server.config.errors import Invalid
from foretool.server.config.servers import matches
from foretool.server.config.settings import AccessEntry, GrantEntry, Settings, TokenEntry
from foretool.server.config.variables import Expansion

DEFAULT: Final = "default"
"""How `tokens[].profiles` names the list at `/mcp`, which has no name."""
_SHORTEST: Final = 16
"""Fewest characters of a token."""
_LEAST_RANDOM: Final = 12
"""Fewest characters that a token must have besides common words."""
_FEWEST_KINDS: Final = 6
"""Fewest different characters of a token."""
WAY_OUT: Final = "run `foretool token new` and paste what it prints"

_EMPTY: Final = "is empty"

_COMMON: Final = re.compile(
    r"foretool|password|passwd|changeme|letmein|welcome|example|replace|default|bearer|secret|qwertyuiop|asdfgh|"
    r"token|please|admin|local|super|dummy|demo|test|your|this|here|user|root|api|key|my|me|[^a-z0-9]"
)
_GUESSED: Final = (
    "",
    "token",
    "secret",
    "password",
    "changeme",
    "test",
    "foretool",
    "admin",
    "mcp",
    "0",
    "1",
    "a",
    "x",
)


def read_tokens(settings: Settings, here: jsonc.Path, environ: Mapping[str, str]) -> tuple[TokenEntry, ...]:
    """Return the tokens with variables expanded and every `sha256` filled in. Raises `Invalid`."""
    read: list[TokenEntry] = []
    for at, entry in enumerate(settings.tokens):
        path: jsonc.Path = (*here, "tokens", at)
        if not entry.name or not entry.name.isprintable():
            raise Invalid(path, 'expected a "name" that can be printed; it tells tokens apart')
        if any(entry.name == other.name for other in read):
            raise Invalid((*path, "name"), f"{entry.name!r} names two tokens; give each a name of its own")
        if bool(entry.sha256) == bool(entry.token):
            raise Invalid(path, f'expected either "sha256" or "token"; {WAY_OUT}')
        if not entry.profiles:
            problem = (
                f'expected "profiles", the profiles that it opens: ["{DEFAULT}"] is the list at /mcp, ["*"] is all'
            )
            raise Invalid(path, problem)
        read.append(_read_token(entry, path, environ))
    return tuple(read)


def _read_token(entry: TokenEntry, path: jsonc.Path, environ: Mapping[str, str]) -> TokenEntry:
    if entry.token:
        token = Expansion(environ, (*path, "token")).text(entry.token)
        return msgspec.structs.replace(entry, token=token, sha256=digest(token))
    if not re.fullmatch(r"[0-9A-Fa-f]{64}", entry.sha256):
        raise Invalid((*path, "sha256"), f"expected 64 hexadecimal digits; {WAY_OUT}")
    return msgspec.structs.replace(entry, sha256=entry.sha256.lower())


def digest(token: str) -> str:
    """Return the SHA-256 of a token as the config holds it."""
    import hashlib  # most configs have no token

    return hashlib.sha256(token.encode()).hexdigest()


def all_tokens(settings: Settings) -> list[TokenEntry]:
    """Return every token of the settings; the setting `token` opens all profiles."""
    own = TokenEntry(name="token", token=settings.token, sha256=digest(settings.token), profiles=("*",))
    return [*([own] if settings.token else []), *settings.tokens]


def needs_token(settings: Settings) -> bool:
    """Return whether HTTP clients need a token: one is set, or an authorization server gives them out."""
    return bool(all_tokens(settings)) or settings.access is not None


def weakness(entry: TokenEntry) -> str:
    """Return why a token is easy to guess; "" if nothing shows that it is."""
    token = entry.token
    if entry.sha256 == digest(""):
        return _EMPTY
    if entry.sha256 in map(digest, _GUESSED):
        return "is a word that everybody tries first"
    if not token:
        return ""
    if len(token) < _SHORTEST:
        return f"has {len(token)} characters, fewer than {_SHORTEST}"
    rest = _COMMON.sub("", token.lower())
    steps = sum(abs(ord(one) - ord(next_one)) <= 1 for one, next_one in pairwise(token))
    if len(rest) < _LEAST_RANDOM or len(set(rest)) < _FEWEST_KINDS or 2 * steps > len(token):
        return "consists of words or of a simple row of characters"
    return ""


def find_problems(settings: Settings) -> list[tuple[TokenEntry, str]]:
    """Return the tokens that must not open anything, each with one line that says why and what to do."""
    entries = all_tokens(settings)
    problems = []
    for at, entry in enumerate(entries):
        shown = "token" if settings.token and at == 0 else f"token {entry.name!r}"
        if weak := weakness(entry):
            guessed = "" if weak == _EMPTY else ", so it could be guessed"
            problems.append((entry, f"{shown} {weak}{guessed}; {WAY_OUT}"))
        elif twin := next((other for other in entries[:at] if other.sha256 == entry.sha256), None):
            problems.append((entry, f"{shown} is the same as {twin.name!r}; give each client its own: {WAY_OUT}"))
    return problems


def opens_profile(patterns: Sequence[str], profile: str, profiles: Iterable[str]) -> bool:
    """Return whether a token with these patterns opens a profile; the profile "" is the list at `/mcp`."""
    # Only the whole word names the list at /mcp, which has every server: "d*" means "dev" and the like.
    if profile == "" and DEFAULT in patterns and DEFAULT not in profiles:
        return True
    return matches(profile, patterns)


def unmatched_patterns(settings: Settings) -> Iterator[tuple[jsonc.Path, str]]:
    """Yield the patterns of tokens and grants that open nothing, each with where it stands in the settings."""
    profiles = ("", *settings.profiles)
    grants = settings.access.grants if settings.access is not None else ()
    entries: list[tuple[jsonc.Path, TokenEntry | GrantEntry]] = [
        *((("tokens", at), entry) for at, entry in enumerate(settings.tokens)),
        *((("access", "grants", at), entry) for at, entry in enumerate(grants)),
    ]
    for path, entry in entries:
        for pattern in entry.profiles:
            if not any(opens_profile((pattern,), profile, profiles) for profile in profiles):
                yield (*path, "profiles"), pattern


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
