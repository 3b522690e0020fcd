"""Reads the challenge of a server that refuses a request (RFC 9110, section 11.6.1; RFC 6750, section 3)."""

from __future__ import annotations

import re
from typing import Final

from foretool.server.signin.record import Challenge

MOST: Final = 8192
"""Characters of a header that are read."""
_PARAMETER: Final = re.compile(
    r'(?:^|[\s,])(?P<name>error|scope|resource_metadata)=(?:"(?P<quoted>[^"\\]*)"|(?P<token>[^\s",]+))'
)
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")
"""Scopes as RFC 6749, section 3.3 writes them."""


def read_challenge(header: str | None) -> Challenge:
    """Return what a `WWW-Authenticate` header asks for; what is not well-formed is left out."""
    found: dict[str, str] = {}
    for match in _PARAMETER.finditer((header or "")[:MOST]):
        found.setdefault(match["name"], match["quoted"] if match["quoted"] is not None else match["token"])
    scope = found.get("scope", "").strip()
    return Challenge(
        found.get("error", "")[:100],
        scope if _SCOPE.fullmatch(scope) else "",
        found.get("resource_metadata", ""),
    )


def write_challenge(challenge: Challenge) -> str:
    """Return the challenge as a header again, with what was read of it and nothing else."""
    parts = (("error", challenge.error), ("scope", challenge.scope), ("resource_metadata", challenge.resource_metadata))
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts if value)


def join_scopes(*lists: str) -> str:
    """Return the scopes of several lists, each once, in their order."""
    return " ".join(dict.fromkeys(scope for each in lists for scope in each.split()))
