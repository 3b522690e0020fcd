"""How clients learn which authorization server to ask: the metadata of a protected resource (RFC 9728), and challenges.

Everything said here comes from the config alone, never from the `Host` of a request: an attacker who chooses that would
send clients to an authorization server of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

import msgspec

from foretool.server.config.settings import AccessEntry

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
    """Return every scope that a config knows by its whole name."""
    named = [value for grant in entry.grants if grant.claim == "scope" for value in grant.values if is_plain(value)]
    return tuple(dict.fromkeys((*entry.scopes, *named)))


def is_plain(pattern: str) -> bool:
    """Tell whether a pattern means one name alone."""
    return not any(letter in pattern for letter in "*?[")


def challenge(entry: AccessEntry, error: str = "", description: str = "", scopes: Iterable[str] = ()) -> str:
    """Return the `WWW-Authenticate` of a refusal. Nothing of the request stands in it."""
    said = {
        "error": error,
        "error_description": description,
        "scope": " ".join(scopes),
        "resource_metadata": metadata_url(entry),
    }
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in said.items() if value)
