"""Asks a token endpoint for a new token, and ends tokens (RFC 6749, sections 4.4 and 6; RFC 7009).

It renews what `foretool login` began, so it knows the endpoint from there and discovers nothing.

The private key with which foretool shows that it is a client (RFC 7523) is read here too. The key decides which
algorithm signs (RFC 7518, section 3.1), so the config names none.
"""

from __future__ import annotations

import base64
import re
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from foretool.server.signin.fetch import FetchError, fetch
from foretool.server.signin.record import SignIn

_LONGEST_S: Final = 10 * 365 * 86_400.0
_OVER: Final = frozenset({"invalid_grant", "invalid_client", "unauthorized_client", "unsupported_grant_type"})
"""Errors after which only a new sign-in helps."""


class TokenError(Exception):
    """No token came. `is_over`: the sign-in has ended, so a person has to sign in again."""

    def __init__(self, reason: str, *, is_over: bool = False) -> None:
        super().__init__(reason)
        self.is_over = is_over


async def renew(record: SignIn) -> SignIn:
    """Return the sign-in with a new token. Raises `TokenError`, without words of the authorization server."""
    if record.refresh_token:
        wanted = {"grant_type": "refresh_token", "refresh_token": record.refresh_token}
    else:
        wanted = {"grant_type": "client_credentials", **({"scope": record.scope} if record.scope else {})}
    if record.resource:
        wanted["resource"] = record.resource
    status, answer = await _post(record, record.token_endpoint, wanted)
    token = answer.get("access_token")
    if status != 200 or not isinstance(token, str) or not is_sendable(token):
        error = error_code(answer)
        raise TokenError(f"the authorization server answered HTTP {status} ({error})", is_over=error in _OVER)
    if str(answer.get("token_type", "Bearer")).lower() != "bearer":
        raise TokenError("the authorization server gave a token of a kind that foretool cannot use", is_over=True)
    now, refreshed, scope = time.time(), answer.get("refresh_token"), answer.get("scope")
    return msgspec.structs.replace(
        record,
        access_token=token,
        refresh_token=refreshed if isinstance(refreshed, str) and refreshed else record.refresh_token,
        scope=scope if isinstance(scope, str) else record.scope,
        received_at=now,
        expires_at=expiry(answer.get("expires_in"), now),
    )


async def revoke(record: SignIn) -> bool:
    """End the tokens of a sign-in at the authorization server. Returns whether it knows that it did."""
    if not record.revocation_endpoint:
        return False
    done = True
    for hint in ("refresh_token", "access_token"):
        if token := getattr(record, hint):
            try:
                wanted = {"token": token, "token_type_hint": hint}
                status, _ = await _post(record, record.revocation_endpoint, wanted)
            except TokenError:
                return False
            done = done and status == 200
    return done


def expiry(seconds: Any, now: float) -> float:
    """Return when a token expires, in seconds of the system clock; 0 if it was not said. Some write a string."""
    try:
        lasts = float(seconds)
    except (TypeError, ValueError):
        return 0.0
    return now + min(max(lasts, 0.0), _LONGEST_S) if lasts == lasts else 0.0


def error_code(answer: dict[str, Any]) -> str:
    """Return the error of an answer if it is a code (RFC 6749, section 5.2): its other texts are written by others."""
    code = answer.get("error")
    return code if isinstance(code, str) and re.fullmatch(r"[a-z_]{1,60}", code) else "no error code"


def is_sendable(token: str) -> bool:
    """Return whether a token can stand in a header."""
    return bool(token) and token.isascii() and token.isprintable() and " " not in token


def basic(client_id: str, secret: str) -> str:
    """Return the value of the header with which a client shows its secret (RFC 6749, section 2.3.1)."""
    pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def read_object(content: bytes) -> dict[str, Any]:
    """Return the JSON object of an answer, {} where it is none."""
    try:
        answer = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


async def _post(record: SignIn, url: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    form = {**form, "client_id": record.client_id}
    if record.auth_method == "client_secret_basic" and record.client_secret:
        headers["authorization"] = basic(record.client_id, record.client_secret)
        del form["client_id"]
    elif record.auth_method == "client_secret_post" and record.client_secret:
        form["client_secret"] = record.client_secret
    try:
        response = await fetch("POST", url, record.url, headers=headers, content=urlencode(form).encode())
    except FetchError as error:
        raise TokenError(f"the authorization server at {error}") from None
    return response.status_code, read_object(response.content)


CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
"""By the name of an elliptic curve: the algorithm that its keys sign with."""


class SigningKeyError(Exception):
    """The key cannot be used. The message is one line, names the file and says what to do."""


class SigningKey(Struct, frozen=True):
    """A private key in PEM form, and the algorithm that it signs with."""

    pem: str
    algorithm: str

    def __repr__(self) -> str:
        return f"SigningKey({self.algorithm!r})"


def read_signing_key(path: str) -> SigningKey:
    """Read a private key from its file. Raises `SigningKeyError`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        pem = Path(path).read_text(encoding="ascii")
        algorithm = _algorithm_of(load_pem_private_key(pem.encode(), None))
    except OSError as error:
        raise SigningKeyError(f"private_key {path} cannot be read ({error.strerror}); correct its path") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        problem = f"private_key {path}: expected a private key in PEM form without a password"
        raise SigningKeyError(f"{problem}; convert it with openssl pkey") from None
    if not algorithm:
        wanted = "expected RSA, Ed25519, or an elliptic curve of NIST"
        raise SigningKeyError(f"private_key {path}: {wanted}; make such a key")
    return SigningKey(pem, algorithm)


def _algorithm_of(key: object) -> str:
    """Return what a private key signs with, "" for a kind that authorization servers do not take."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return "EdDSA"
    return CURVES.get(key.curve.name, "") if isinstance(key, ec.EllipticCurvePrivateKey) else ""
