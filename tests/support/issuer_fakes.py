"""An authorization server of the tests: keys, tokens signed with them, and the documents that it shows."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from foretool.fleet.people.key_sets import KeySet
from foretool.server.config.settings import AccessEntry, GrantEntry
from foretool.server.signin.fetch import FetchError

ISSUER = "https://login.example.com/realms/work"
RESOURCE = "https://tools.example.com/mcp"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
GRANTS = (
    GrantEntry(claim="groups", values=("developers", "ops-*"), profiles=("work",)),
    GrantEntry(claim="scope", values=("home",), profiles=("home",)),
    GrantEntry(claim="scope", values=("decide",), profiles=("*",), may_decide=True),
)


def jwk(private: Any, **more: Any) -> dict[str, Any]:
    """The public half of a key as an authorization server shows it."""
    kinds = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    kind = next((each for key, each in kinds.items() if isinstance(private, key)), OKPAlgorithm)
    return {**json.loads(kind.to_jwk(private.public_key())), **more}


KEYS = {
    "keys": [jwk(RSA_KEY, kid="rsa", use="sig"), jwk(EC_KEY, kid="ec"), jwk(ED_KEY, kid="ed")],
}


def token(
    subject: str = "ann", *, key: Any = RSA_KEY, algorithm: str = "RS256", headers: dict[str, Any] | None = None,
    **claims: Any,
) -> str:  # fmt: skip
    """An access token that is valid for five minutes. A claim that is None is left out."""
    now = int(time.time())
    said = {"iss": ISSUER, "sub": subject, "aud": RESOURCE, "iat": now, "exp": now + 300, **claims}
    said = {name: value for name, value in said.items() if value is not None}
    named = {"kid": "rsa", "typ": "at+jwt", **(headers or {})}
    return jwt.encode(said, key, algorithm, {name: value for name, value in named.items() if value is not None})


class Documents:
    """What the authorization server shows, and what it was asked for."""

    def __init__(self, keys: Any = None) -> None:
        self.keys = KEYS if keys is None else keys
        self.issuer = ISSUER
        self.asked: list[str] = []
        self.is_away = False

    async def read(self, url: str) -> Any:
        self.asked.append(url)
        if self.is_away:
            raise FetchError("login.example.com did not answer")
        if "/.well-known/" in url:
            return {"issuer": self.issuer, "jwks_uri": f"{ISSUER}/keys"}
        return self.keys


def access_entry(**changes: Any) -> AccessEntry:
    """`access` of the config as it is after it was read."""
    return AccessEntry(**{"issuer": ISSUER, "resource": RESOURCE, "audience": (RESOURCE,), "grants": GRANTS, **changes})


def key_set(documents: Documents | None = None, **more: Any) -> KeySet:
    return KeySet(ISSUER, read=(documents or Documents()).read, **more)
