"""The public keys of an authorization server (RFC 7517): read once, kept, and read again when a token names a new one.

Whoever can send us a token can name any key, so a name that is not known has the keys read again once in `PAUSE_S` at
most, and by one request however many tokens wait. A name is only compared with those that the server has listed; it
never becomes a part of an address or of a query.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from msgspec import Struct

from foretool.server.signin.fetch import FetchError, fetch
from foretool.server.signin.tokens import CURVES

PAUSE_S: Final = 30.0
"""Keys are not read more often than this, whatever tokens name."""
FRESH_S: Final = 900.0
"""After this long the keys are read again with the next token, which need not wait for it."""
STALE_S: Final = 24 * 3600.0
"""Keys that could not be read again for this long are no longer believed."""
WAIT_S: Final = 5.0
"""Longest wait of one request for keys that are being read."""
MOST_KEYS: Final = 64
_MOST_NAME: Final = 256
"""Characters of a key's name."""
_LEAST_BITS: Final = 2048
_MOST_BITS: Final = 8192
"""Of an RSA key: a shorter one can be broken, a longer one makes each check slow."""

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")

Read = Callable[[str], Awaitable[Any]]
"""Fetches one JSON document. Raises `FetchError`."""

log = logging.getLogger("foretool.identity")


class KeysMissing(Exception):
    """No keys of the authorization server could be read, so that no token can be checked; the message is one line."""


class Key(Struct, frozen=True):
    """One public key, and the algorithms that a token signed with it may name."""

    name: str | None
    public: Any
    algorithms: tuple[str, ...]


class KeySet:
    """The keys of one issuer. `jwks_url`: where they are, "" to learn it from the metadata of the issuer."""

    def __init__(self, issuer: str, jwks_url: str = "", read: Read | None = None) -> None:
        self.issuer = issuer
        self.version = 0
        """Grows whenever other keys are in force."""
        self.problem = ""
        """Why the keys could not be read when that was last tried."""
        self._jwks_url = jwks_url
        self._read = read or (lambda url: _fetch_json(url, issuer))
        self._keys: tuple[Key, ...] = ()
        self._read_at = self._tried_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def find(self, name: str | None, algorithm: str) -> list[Key]:
        """Return the keys that a token with this header may be signed with. Raises `KeysMissing` while there are no
        keys at all."""
        now = time.monotonic()
        found = self._fitting(name, algorithm)
        if not found and now - self._tried_at >= PAUSE_S:
            self._begin()
        if not found and self._reading is not None:
            await asyncio.wait([self._reading], timeout=WAIT_S)
            found = self._fitting(name, algorithm)
        elif now - self._read_at >= FRESH_S and now - self._tried_at >= PAUSE_S:
            self._begin()
        if not self._keys or time.monotonic() - self._read_at > STALE_S:
            raise KeysMissing(self.problem or "the keys of the authorization server are still being read")
        return found

    def warm(self) -> None:
        """Begin to read the keys before a token needs them."""
        if not self._keys:
            self._begin()

    async def close(self) -> None:
        """Cancel the reading of keys that is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def _fitting(self, name: str | None, algorithm: str) -> list[Key]:
        usable = [key for key in self._keys if algorithm in key.algorithms]
        return usable[:4] if name is None else [key for key in usable if key.name == name]

    def _begin(self) -> None:
        if self._reading is None:
            self._tried_at = time.monotonic()
            self._reading = asyncio.create_task(self._read_again())

    async def _read_again(self) -> None:
        try:
            keys = read_keys(await self._read(await self._find_url()))
        except FetchError as error:
            self._complain(f"the keys of {_shown(self.issuer)} cannot be read: {error}")
        else:
            self.problem = ""
            self._read_at = time.monotonic()
            if keys != self._keys:
                self._keys = keys
                self.version += 1
        finally:
            self._reading = None

    async def _find_url(self) -> str:
        """Return where the keys are. The issuer in the metadata has to be ours, letter by letter (RFC 8414, 3.3)."""
        if self._jwks_url:
            return self._jwks_url
        said = FetchError("it has no metadata")
        for url in metadata_urls(self.issuer):
            try:
                document = await self._read(url)
            except FetchError as error:
                said = error
                continue
            if not isinstance(document, dict) or document.get("issuer") != self.issuer:
                said = FetchError("its metadata names another issuer; write that one, letter by letter, as `issuer`")
            elif isinstance(found := document.get("jwks_uri"), str):
                return found
            else:
                said = FetchError('its metadata has no "jwks_uri"')
        raise said

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("%s", problem)
        self.problem = problem


def metadata_urls(issuer: str) -> list[str]:
    """Return where the metadata of an issuer may be, in the order of the MCP specification."""
    parts = urlsplit(issuer)
    at, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    inserted = [f"{at}/.well-known/{kind}{path}" for kind in ("oauth-authorization-server", "openid-configuration")]
    return [*inserted, f"{at}{path}/.well-known/openid-configuration"] if path else inserted


def read_keys(document: Any) -> tuple[Key, ...]:
    """Return the keys of a set that a token may be signed with. Raises `FetchError` if there are none."""
    entries = document.get("keys") if isinstance(document, dict) else None
    found = [key for entry in (entries if isinstance(entries, list) else [])[:MOST_KEYS] if (key := _read_key(entry))]
    if not found:
        raise FetchError("it names no key that can check a signature")
    return tuple(found)


def _read_key(entry: Any) -> Key | None:
    if not isinstance(entry, dict) or entry.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    operations = entry.get("key_ops")
    if entry.get("use", "sig") != "sig" or (isinstance(operations, list) and "verify" not in operations):
        return None
    name = entry.get("kid")
    if name is not None and not (isinstance(name, str) and len(name) <= _MOST_NAME):
        return None
    try:
        public = jwt.PyJWK({**entry, "alg": _any_algorithm(entry)}).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithms = algorithms_of(public)
    if isinstance(own := entry.get("alg"), str):
        algorithms = tuple(each for each in algorithms if each == own)
    return Key(name, public, algorithms) if algorithms else None


def _any_algorithm(entry: dict[str, Any]) -> str:
    """Return an algorithm of the key's kind: the reader wants one, also for a key that does not say any."""
    curves = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
    return {"RSA": "RS256", "OKP": "EdDSA"}.get(entry["kty"]) or curves.get(str(entry.get("crv")), "ES256")


def algorithms_of(public: object) -> tuple[str, ...]:
    """Return the signature algorithms that a public key may be used with. The kind of the key decides, never the
    token."""
    if isinstance(public, RSAPublicKey):
        return _RSA if _LEAST_BITS <= public.key_size <= _MOST_BITS else ()
    if isinstance(public, EllipticCurvePublicKey):
        return tuple(filter(None, (CURVES.get(public.curve.name),)))
    return ("EdDSA",) if isinstance(public, Ed25519PublicKey) else ()


def _shown(issuer: str) -> str:
    return urlsplit(issuer).netloc[:100]


async def _fetch_json(url: str, issuer: str) -> Any:
    """Fetch a document from where the issuer is. A redirect is not followed."""
    response = await fetch("GET", url, issuer, headers={"accept": "application/json"})
    if response.status_code != 200:
        raise FetchError(f"{_shown(url)} answered with HTTP {response.status_code}")
    try:
        return msgspec.json.decode(response.content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise FetchError(f"{_shown(url)} answered with something else than JSON") from None
