"""What is kept of one sign-in: whose token it is, until when, and how it is renewed.

`read_challenge` reads the challenge of a server that refuses a request (RFC 9110, section 11.6.1; RFC 6750, section 3).
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Struct

from foretool.server.config.servers import Server
from foretool.server.config.settings import OAuthEntry

EARLY_S: Final = 60.0
"""A token is renewed this long before it expires, at most: one that lives shortly is renewed after three quarters."""
_SECRET: Final = ("access_token", "refresh_token", "client_secret")


class SignIn(Struct, frozen=True, kw_only=True):
    """One sign-in to one server. Never shown or logged as a whole: `repr` leaves the secrets out."""

    server: str
    """The server's name in the config."""
    url: str
    """The server's address. The token goes nowhere else."""
    issuer: str = ""
    """The authorization server."""
    token_endpoint: str = ""
    revocation_endpoint: str = ""
    resource: str = ""
    """What the token was asked for (RFC 8707), "" if nothing was named."""
    client_id: str = ""
    client_secret: str = ""
    auth_method: str = "none"
    """How the client shows itself at the token endpoint: `none`, `client_secret_basic`, `client_secret_post`, or
    `private_key_jwt`."""
    grant: str = "authorization_code"
    redirect_uri: str = ""
    scope: str = ""
    """Scopes that were granted, with blanks between."""
    access_token: str = ""
    refresh_token: str = ""
    received_at: float = 0.0
    expires_at: float = 0.0
    """Seconds of the system clock; 0 if the authorization server did not say."""
    signed_in_at: float = 0.0

    @property
    def renew_at(self) -> float:
        """When the token should be renewed, in seconds of the system clock; 0 for never."""
        if not self.expires_at or not self.renews_itself:
            return 0.0
        return self.expires_at - min(EARLY_S, (self.expires_at - self.received_at) / 4)

    @property
    def is_renewable(self) -> bool:
        """Whether the proxy itself can ask for a new token."""
        if self.auth_method == "private_key_jwt":
            return False  # the process that signs in signs with the key; the proxy never reads it
        return bool(self.token_endpoint) and (bool(self.refresh_token) or self.grant == "client_credentials")

    @property
    def renews_itself(self) -> bool:
        """Whether foretool gets new tokens without a person: in the proxy, or in a process that signs in again."""
        return self.is_renewable or self.grant == "client_credentials"

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, (getattr(self, field) for field in _SECRET)))

    def split(self) -> tuple[dict[str, object], dict[str, str]]:
        """Return the sign-in in two parts: what may stand in a file, and the secrets."""
        everything = msgspec.structs.asdict(self)
        return {key: each for key, each in everything.items() if key not in _SECRET}, {
            key: everything[key] for key in _SECRET
        }

    def __repr__(self) -> str:
        return f"SignIn({self.server!r}, {self.issuer!r})"


class Challenge(Struct, frozen=True):
    """What a server asks for in the `WWW-Authenticate` of a 401 or 403."""

    error: str = ""
    scope: str = ""
    resource_metadata: str = ""


def fits_server(record: SignIn, server: Server) -> bool:
    """Return whether a sign-in is for this server as the config describes it now."""
    wanted: OAuthEntry = server.oauth
    same_client = not wanted.client_id or wanted.client_id == record.client_id
    return record.url == server.url and same_client and wanted.grant == record.grant


_MOST: Final = 8192
"""Characters of a header that are read."""
_PARAMETER: Final = re.compile(
    r'(?:^|[\s,])(?P<name>error|scope|resource_metadata)=(?:"(?P<quoted>[^"\\]*)"|(?P<token>[^\s",]+))'
)
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")
"""Scopes as RFC 6749, section 3.3 writes them."""


def read_challenge(header: str | None) -> Challenge:
    """Return what a `WWW-Authenticate` header asks for; what is not well-formed is left out."""
    found: dict[str, str] = {}
    for match in _PARAMETER.finditer((header or "")[:_MOST]):
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
